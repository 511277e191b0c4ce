#!lua flags=allow-oom
local outbox = KEYS[1]; local turns = ARGV[1]; local member = ARGV[2]; local tries = ARGV[3]; local delay_ms = tonumber(ARGV[4])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)


if redis.call('HGET', (shard .. 'outbox-tries'), member) ~= tries then
  return { 'other' }
end
redis.call('ZADD', outbox, 'XX', now_ms + delay_ms, member)
return { 'ok' }
