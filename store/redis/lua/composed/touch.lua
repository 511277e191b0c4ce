#!lua flags=allow-oom
local node = KEYS[1]; local job = KEYS[2]; local clock = KEYS[3]; local leaves = KEYS[4]; local trees = KEYS[5]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local idle_us = tonumber(ARGV[4])
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
local function looked_at(idle_us)
  local root, deleted, status, background, log_bytes =
    unpack(redis.call('HMGET', node, 'root', 'deleted', 'status', 'background', 'log_bytes'))
  if not root or deleted or gone(tenant, root, idle_us) then
    return nil
  end
  local under_way = background and redis.call('EXISTS', job) == 1
  return { 'ok', status, background or '', under_way and 1 or 0, (under_way or log_bytes) and 1 or 0 }, root
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

local found, root = looked_at(idle_us)
if not found then
  return { 'missing' }
end
if found[4] == 0 then
  do
    local root = root
    local score
    do
      local clock = clock
      local next_one = (string.format('%.0f', now_us))
      local last = redis.call('SET', clock, next_one, 'GET')
      if last and tonumber(last) >= tonumber(next_one) then
        next_one = (string.format('%.0f', (last + 1)))
        redis.call('SET', clock, next_one)
      end
      score = next_one
    end
    redis.call('HSET', node, 'touched', score)
    redis.call('ZADD', leaves .. ':' .. tenant, 'XX', score, digits)
    do
      local tenant, root, score = tenant, root, score
      redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
      redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
    end
  end
end
return found
