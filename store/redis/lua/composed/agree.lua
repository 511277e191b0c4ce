#!lua flags=allow-oom
local store = KEYS[1]; local turns = ARGV[1]; local revision = ARGV[2]; local fields = ARGV[3]; local release = ARGV[4]
local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]


if (redis.call('HGET', store, 'revision') or '0') ~= revision then
  return { 'changed' }
end
for name, value in string.gmatch(fields, '(%S+)=(%S+)') do
  redis.call('HSET', store, name, value)
end
redis.call('HSET', store, 'release', release, 'written', (string.format('%.0f', (math.floor(now_us / 1000)))))
redis.call('HINCRBY', store, 'revision', 1)
return { 'ok' }
