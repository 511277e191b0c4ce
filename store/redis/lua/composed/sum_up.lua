#!lua flags=allow-oom,no-writes
local leaves = KEYS[1]; local trees = KEYS[2]; local turns = ARGV[1]; local tenant = ARGV[2]; local roots = ARGV[3]; local most = tonumber(ARGV[4])
local shard = string.sub(turns, 1, -#'t:' - 1)

local CONVERSATION_MARK = '636f6e766572'

local LOOKED_AT = 1000
local LEVELS = 4

local under_way_by_root

local function under_way_in(tenant, root)
  if redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'jobs') == 0 then
    return {}
  elseif under_way_by_root then
    return under_way_by_root[root] or {}
  end
  under_way_by_root = {}
  local function note(digits)
    local found = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root')
    if found then
      under_way_by_root[found] = under_way_by_root[found] or {}
      table.insert(under_way_by_root[found], digits)
    end
  end
  for level = 0, LEVELS - 1 do
    for _, digits in ipairs(redis.call('ZRANGE', (shard .. ('line:' .. level .. ':' .. tenant)), 0, LOOKED_AT - 1)) do
      note(digits)
    end
  end
  for _, member in ipairs(redis.call('ZRANGE', (shard .. 'leases'), 0, LOOKED_AT - 1)) do
    local name, digits
    do
      local member = member
      local slash = string.find(member, '/', 1, true)
      name, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
    end
    if name == tenant then
      note(digits)
    end
  end
  return under_way_by_root[root] or {}
end

local MOST_COMPARED = 100

local left = most

local function turns_of(tenant, root, tips)
  if #tips == 1 then
    return tonumber(redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. (tips[1])), 'depth') or 0) - ((string.sub((tips[1]), 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) and 1 or 0), true
  end
  local nodes, call, seen, number = (turns .. tenant .. ':' .. 'node' .. ':' .. ''), redis.call, {}, 0
  for _, digits in ipairs(tips) do
    if left > 0 and (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) then
      number = number - 1
    end
    while digits and digits ~= '' and not seen[digits] do
      if left <= 0 then
        return number, false
      end
      left = left - 1
      seen[digits] = true
      number = number + 1
      digits = call('HGET', nodes .. digits, 'parent')
    end
  end
  return number, true
end

local function used_last(tenant, tips)
  local newest, found = -1, nil
  for at = 1, math.min(#tips, MOST_COMPARED) do
    local used = tonumber(redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. (tips[at])), 'touched') or 0)
    if used > newest then
      newest, found = used, tips[at]
    end
  end
  return found
end

local function newest_of(tenant, root, used, tips)
  local found = redis.call('ZRANGE', (leaves .. ':' .. tenant), used, used, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if found and redis.call('SISMEMBER', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), found) == 1 then
    return found
  end
  return used_last(tenant, tips) or root
end

local function summed_up(root)
  local used = redis.call('ZSCORE', trees, tenant .. '/' .. root)
  if not used or used == '0' then
    return '', true
  end
  local set, jobs = (turns .. tenant .. ':' .. 'tree' .. ':' .. root), under_way_in(tenant, root)
  local wanted = math.max(left, MOST_COMPARED)
  local whole = redis.call('SCARD', set) <= wanted
  local tips = whole and redis.call('SMEMBERS', set) or redis.call('SRANDMEMBER', set, wanted)
  for _, digits in ipairs(jobs) do
    table.insert(tips, 1, digits)
  end
  left = left - #tips
  local number, all = turns_of(tenant, root, tips)
  local newest, named = newest_of(tenant, root, used, tips), '-'
  if (string.sub(newest, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) then
    named, newest = newest, redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. newest), 'parent') or root
  end
  whole = whole and all
  local status, created, bytes, deleted = unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. newest), 'status', 'created',
    'response_bytes', 'deleted'))
  status = deleted and 'deleted' or status or '-'
  return table.concat({ used, number, whole and 1 or 0, newest, named, #jobs, status, created or 0, bytes or 0 }, ' '), whole
end

local reply = { 'ok' }
for root in string.gmatch(roots, '%x+') do
  local row, all = summed_up(root)
  if #reply > 1 and not all then
    break
  end
  reply[#reply + 1] = row
end
return reply
