#!lua flags=allow-oom
local clock = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local number = ARGV[4]; local digest = ARGV[5]; local by = ARGV[6]; local run = ARGV[7]; local kept_ms = tonumber(ARGV[8])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)


local asking, using = (shard .. ('approvals:' .. tenant)), (shard .. ('approved:' .. tenant))
local user = redis.call('HGET', using, digits .. number)
if user then
  local again = user == by .. '/' .. run and 'again' or string.sub(user, 1, #by + 1) == by .. '/' and 'begun'
  return { again or 'used' }
end
local member = digits .. number .. '/' .. digest
local asked = tonumber(redis.call('ZSCORE', asking, member) or 0)
if asked <= now_ms - kept_ms then
  return { 'unknown' }
end
if run ~= '' then
  redis.call('ZADD', asking, asked, digits .. number .. '/')
  redis.call('ZREM', asking, member)
  redis.call('HSET', using, digits .. number, by .. '/' .. run)
  redis.call('PEXPIRE', using, kept_ms)
end
return { 'ok' }
