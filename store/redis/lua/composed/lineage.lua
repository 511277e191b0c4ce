#!lua flags=allow-oom,no-writes
local node = KEYS[1]; local trees = KEYS[2]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local idle_us = tonumber(ARGV[4])
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
local PATH_TURNS = 32

local function walk(tenant, digits, depth)
  local found, last = { digits }, digits
  while depth > 1 do
    local above = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. last), (depth > PATH_TURNS and depth % PATH_TURNS == 1) and 'path' or 'parent')
    if not above then
      error('BROKEN the chain of ' .. digits .. ' has no turn ' .. last)
    end
    found[#found + 1] = above
    last = string.sub(above, -#digits)
    depth = depth - #above / #digits
  end
  return table.concat(found)
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

local root, deleted, depth = unpack(redis.call('HMGET', node, 'root', 'deleted', 'depth'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
return { 'ok', walk(tenant, digits, tonumber(depth)) }
