#!lua flags=allow-oom
local node = KEYS[1]; local job = KEYS[2]; local trees = KEYS[3]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local token = ARGV[4]; local lease_ms = tonumber(ARGV[5]); local idle_us = tonumber(ARGV[6])
local seldom, defined_0
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local ALL_TENANTS = '*'
local function dequeue(level, tenant, digits)
  local queued, member = ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), tenant .. '/' .. digits
  local since = redis.call('ZSCORE', queued, member)
  redis.call('ZREM', queued, member)
  redis.call('ZREM', ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or '')), digits)
  local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  local bytes = redis.call('HGET', job, 'waiting_bytes')
  if bytes then
    redis.call('HDEL', job, 'waiting_bytes')
    do
      local tenant, bytes = tenant, 0 - bytes
      local sums = (shard .. 'waiting-bytes')
      for _, whose in ipairs({ tenant, ALL_TENANTS }) do
        if redis.call('HINCRBY', sums, whose, bytes) <= 0 then
          redis.call('HDEL', sums, whose)
        end
      end
    end
  end
  return since
end

local function lease(tenant, digits, token, lease_ms, heard)
  local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  redis.call('HSET', job, 'token', token, 'level', '', 'lease_ms', lease_ms, 'heard', heard)
  redis.call('ZADD', (shard .. 'leases'), now_ms + lease_ms, tenant .. '/' .. digits)
  return redis.call('HINCRBY', job, 'epoch', 1)
end

local function gone(tenant, root, idle_us)
  local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us - idle_us or redis.call('EXISTS', (shard .. 'archive')) == 1) then
    return false
  end
  return used == 0 or not seldom('outlasts')(tenant, root)
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

local root, deleted, status, background = unpack(redis.call('HMGET', node, 'root', 'deleted', 'status', 'background'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
elseif not background then
  return { 'synchronous' }
end
local level, epoch, last, submitted, started =
  unpack(redis.call('HMGET', job, 'level', 'epoch', 'last', 'submitted', 'started'))

local function since(moment)
  return (string.format('%.0f', (now_ms - (moment or now_ms))))
end

if status == 'cancelled' and epoch and (redis.call('HGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'token') == token) then
  return { 'ok', epoch, last, since(submitted), since(started) }
elseif status == 'cancelled' then
  return { 'cancelled' }
elseif not epoch then
  return { 'ended', status }
end
if level ~= '' then
  do
    local tenant, digits, span = tenant, digits, now_ms - (dequeue(level, tenant, digits) or now_ms)
    local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
    local started = tonumber(redis.call('HGET', job, 'started') or nil)
    if started and span > 0 then
      redis.call('HSET', job, 'started', (string.format('%.0f', (math.min(started + span, now_ms)))))
    end
  end
  started = redis.call('HGET', job, 'started')
end
redis.call('HSET', node, 'status', 'cancelled')
redis.call('HSET', job, 'tries', 1, 'progressed', 0)
epoch = lease(tenant, digits, token, lease_ms, 'yes')
do
  local word = 'cancelled ' .. tenant .. '/' .. digits
  redis.call('SPUBLISH', (shard .. 'control'), word)
end
return { 'ok', (string.format('%.0f', epoch)), last, since(submitted), since(started) }
