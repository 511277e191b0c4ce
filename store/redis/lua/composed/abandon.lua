#!lua flags=allow-oom
local node = KEYS[1]; local trees = KEYS[2]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local token = ARGV[4]; local idle_us = tonumber(ARGV[5])
local seldom, defined_0
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local function next_score(clock)
  local next_one = (string.format('%.0f', now_us))
  local last = redis.call('SET', clock, next_one, 'GET')
  if last and tonumber(last) >= tonumber(next_one) then
    next_one = (string.format('%.0f', (last + 1)))
    redis.call('SET', clock, next_one)
  end
  return next_one
end
local function gone(tenant, root, idle_us)
  local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us - idle_us or redis.call('EXISTS', (shard .. 'archive')) == 1) then
    return false
  end
  return used == 0 or not seldom('outlasts')(tenant, root)
end
local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0

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
if not root then
  return { 'missing' }
end
if redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'abandoned') == token then
  return { 'ok', root }
end
if deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
if (redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'jobs') == 1) then
  return { 'running' }
end
redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'abandoned', token)
do
  local tenant, root, score = tenant, root, 0
  redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
  redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
end
do
  local tenant, root, member, score = tenant, root, '*' .. root, next_score((shard .. 'clock'))
  local after = not plain and redis.call('GET', (shard .. 'archive'))
  if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
    and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
    redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
  end
end
return { 'ok', root }
