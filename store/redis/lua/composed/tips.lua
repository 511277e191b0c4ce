#!lua flags=allow-oom,no-writes
local node = KEYS[1]; local trees = KEYS[2]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local cursor = ARGV[4]; local most = tonumber(ARGV[5]); local idle_us = tonumber(ARGV[6])
local seldom, defined_0
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local function gone(tenant, root, idle_us)
  local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us - idle_us or redis.call('EXISTS', (shard .. 'archive')) == 1) then
    return false
  end
  return used == 0 or not seldom('outlasts')(tenant, root)
end
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

function seldom(name)
  if not defined_0 then
    local turns = ARGV[1]
    local MOST_LEAVES = 10000
    local CONVERSATIONS = '??636f6e766572*'

    local function conversation_in(tenant, root)
      if redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'named') == 0 then
        return nil
      end
      local cursor, seen = '0', 0
      repeat
        local page = redis.call('SSCAN', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), cursor, 'MATCH', CONVERSATIONS, 'COUNT', 1000)
        for _, digits in ipairs(page[2]) do
          if redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'deleted') == 0 then
            return digits
          end
        end
        cursor, seen = page[1], seen + 1000
      until cursor == '0' or seen >= MOST_LEAVES
      return cursor ~= '0' or nil
    end

    local function outlasts(tenant, root)
      return (redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'jobs') == 1) or conversation_in(tenant, root)
    end

    defined_0 = { outlasts = outlasts }
  end
  return defined_0[name]
end

local root, deleted = unpack(redis.call('HMGET', node, 'root', 'deleted'))
if not root or (deleted and root ~= digits) or gone(tenant, root, idle_us) then
  return { 'missing' }
end
local tips, nodes = {}, (turns .. tenant .. ':' .. 'node' .. ':' .. '')
local function add(tip)
  local touched = redis.call('HGET', nodes .. tip, 'touched')
  if touched then
    tips[#tips + 1] = tip .. '=' .. touched
  end
end
if cursor == '0' then
  for _, tip in ipairs(under_way_in(tenant, root)) do
    add(tip)
  end
end
local page = redis.call('SSCAN', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), cursor, 'COUNT', most)
for _, tip in ipairs(page[2]) do
  add(tip)
end
local used = redis.call('ZSCORE', trees, tenant .. '/' .. root)
return { 'ok', root, used, page[1], table.concat(tips, ' ') }
