#!lua flags=allow-oom,no-writes
local trees = KEYS[1]; local turns = ARGV[1]; local members = ARGV[2]; local above = tonumber(ARGV[3]); local idle_us = tonumber(ARGV[4])
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

local reply = { 'ok' }
for member in string.gmatch(members, '%S+') do
  local tenant, digits
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  local lines, parent = {}, nil
  local root = idle_us >= 0 and redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root')
  for at = 0, root and gone(tenant, root, idle_us) and -1 or above do
    lines[at + 1], parent = described(tenant, digits)
    if not lines[at + 1] or parent == '' then
      break
    end
    digits = parent
  end
  reply[#reply + 1] = table.concat(lines, '\n')
end
return reply
