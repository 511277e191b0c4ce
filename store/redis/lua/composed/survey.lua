#!lua flags=allow-oom,no-writes
local trees = KEYS[1]; local turns = ARGV[1]; local members = ARGV[2]; local most = tonumber(ARGV[3])
local DESCRIBED = { 'parent', 'root', 'deleted', 'erased', 'fleeting', 'status', 'digest', 'created', 'touched', 'held',
  'messages_bytes', 'response_bytes', 'chain_messages', 'chain_bytes', 'background', 'submission' }

local function described(tenant, digits)
  local found = redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), unpack(DESCRIBED))
  local parent = found[1]
  if not parent then
    return nil
  end
  local words = { digits }
  for at = 1, #DESCRIBED do
    words[at + 1] = found[at] and found[at] ~= '' and found[at] or '-'
  end
  if found[4] and parent ~= '' then
    local above = redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. parent), 'chain_messages', 'chain_bytes')
    words[#words + 1] = above[1] or 0
    words[#words + 1] = above[2] or 0
  end
  return table.concat(words, ' '), parent
end

local left, reply = most, { 'ok' }

local function add_path(tenant, leaf, seen, lines)
  local path, digits = {}, leaf
  while digits ~= '' and not seen[digits] do
    if left == 0 then
      return 'large'
    end
    left = left - 1
    local line, parent = described(tenant, digits)
    if not line then
      return 'broken'
    end
    seen[digits], path[#path + 1], digits = true, line, parent
  end
  for at = #path, 1, -1 do
    lines[#lines + 1] = path[at]
  end
end

local function surveyed(member)
  local tenant, root
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    tenant, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  local used = redis.call('ZSCORE', trees, member)
  if not used or used == '0' then
    return 'gone 0 0'
  end
  local about = used .. ' ' .. (redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'jobs') or '0')
  local set, full = (turns .. tenant .. ':' .. 'tree' .. ':' .. root), left == most
  if string.match(about, ' [^0]') or redis.call('SCARD', set) > most then
    return 'large ' .. about
  end
  local seen, lines = {}, { 'whole ' .. about }
  for _, leaf in ipairs(redis.call('SMEMBERS', set)) do
    local why = add_path(tenant, leaf, seen, lines)
    if why == 'large' and not full then
      return 'later ' .. about
    elseif why then
      return why .. ' ' .. about
    end
  end
  return table.concat(lines, '\n')
end

for member in string.gmatch(members, '%S+') do
  reply[#reply + 1] = surveyed(member)
end
return reply
