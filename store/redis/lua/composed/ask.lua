#!lua flags=allow-oom
local clock = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local asked = ARGV[4]; local kept_ms = tonumber(ARGV[5]); local most = tonumber(ARGV[6])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)


local asking, using = (shard .. ('approvals:' .. tenant)), (shard .. ('approved:' .. tenant))

local function drop(members)
  for _, member in ipairs(members) do
    redis.call('ZREM', asking, member)
    redis.call('HDEL', using, string.match(member, '^%x+'))
  end
end

drop(redis.call('ZRANGE', asking, '-inf', now_ms - kept_ms, 'BYSCORE', 'LIMIT', 0, 100))
for each in string.gmatch(asked, '%S+') do
  if not redis.call('HGET', using, digits .. string.match(each, '^%x+')) then
    redis.call('ZADD', asking, 'NX', now_ms, digits .. each)
  end
end
local excess = redis.call('ZCARD', asking) - most
if excess > 0 then
  drop(redis.call('ZRANGE', asking, 0, excess - 1))
end
redis.call('PEXPIRE', asking, kept_ms)
return { 'ok' }
