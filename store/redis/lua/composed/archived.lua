#!lua flags=allow-oom
local clock = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local done = ARGV[4]; local fence_ms = tonumber(ARGV[5])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]


local own = ((shard .. ('changes:' .. tenant .. '/' .. digits)))
for member, score in string.gmatch(done, '(%S+)=(%S+)') do
  if redis.call('ZSCORE', own, member) == score then
    redis.call('ZREM', own, member)
    local word = string.sub(member, 1, 1)
    if word ~= '+' then
      redis.call('SET', ((shard .. ('fence:' .. tenant .. '/' .. (word == '*' and member or string.sub(member, 2))))), '', 'PX', fence_ms)
    end
  end
end
local left = redis.call('ZCARD', own)
redis.call('HDEL', (shard .. 'archive-failed'), tenant .. '/' .. digits)
if left == 0 then
  redis.call('ZREM', (shard .. 'unarchived'), tenant .. '/' .. digits)
else
  local after = redis.call('GET', (shard .. 'archive')) or 0
  redis.call('ZADD', (shard .. 'unarchived'), 'XX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. digits)
end
return { 'ok', left }
