#!lua flags=allow-oom
local leases = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local token = ARGV[4]; local counts = ARGV[5]; local gives_way = ARGV[6]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local RESUMED = 0

if not (redis.call('HGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'token') == token) then
  return { 'lost' }
end
local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
local heard = redis.call('HGET', job, 'heard')
if counts == '1' then
  do
    local job, heard = job, heard
    if heard == 'no' then
      local tries, progressed = unpack(redis.call('HMGET', job, 'tries', 'progressed'))
      redis.call('HSET', job, 'tries', (progressed == '1' and 1 or tries + 1), 'progressed', 0)
    end
    if heard and heard ~= 'yes' then
      redis.call('HSET', job, 'heard', 'yes')
    end
  end
elseif heard ~= 'no' then
  redis.call('HINCRBY', job, 'tries', -1)
end
do
  local tenant, digits, gives_way = tenant, digits, gives_way == '1'
  local sequence, own = unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'sequence', 'own'))
  local ended = redis.call('ZSCORE', (shard .. 'leases'), tenant .. '/' .. digits)
  redis.call('ZREM', (shard .. 'leases'), tenant .. '/' .. digits)
  do
    local tenant, digits, span = tenant, digits, ended and now_ms - ended or 0
    local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
    local started = tonumber(redis.call('HGET', job, 'started') or nil)
    if started and span > 0 then
      redis.call('HSET', job, 'started', (string.format('%.0f', (math.min(started + span, now_ms)))))
    end
  end
  if sequence then
    do
      local level, tenant, digits, sequence, gave_way = gives_way and own or RESUMED, tenant, digits, sequence, gives_way
      local turn = ((shard .. 'turn') .. ':' .. level .. (nil and ':' .. nil or ''))
      if not redis.call('ZSCORE', turn, tenant) then
        local first, last = redis.call('ZRANGE', turn, 0, 0, 'WITHSCORES')[2], redis.call('ZRANGE', turn, -1, -1, 'WITHSCORES')[2]
        redis.call('ZADD', turn, gave_way and (last or -1) + 1 or (first or 1) - 1, tenant)
      end
      redis.call('ZADD', ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or '')), sequence, digits)
      redis.call('ZADD', ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), now_ms, tenant .. '/' .. digits)
      redis.call('HSET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'level', level, 'token', '')
      do
        local word = 'work'
        redis.call('SPUBLISH', (shard .. 'control'), word)
      end
    end
  end
end
return { 'ok' }
