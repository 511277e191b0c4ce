#!lua flags=allow-oom
local clock = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local owner = ARGV[4]; local named = ARGV[5]; local kept = ARGV[6]; local calls = tonumber(ARGV[7]); local lease_ms = tonumber(ARGV[8]); local kept_ms = tonumber(ARGV[9])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local keyed, untils = (shard .. ('keyed:' .. tenant)), (shard .. ('keyed-until:' .. tenant))

local function read_keyed(digits)
  local record = redis.call('HGET', keyed, digits)
  local ends = record and redis.call('ZSCORE', untils, digits)
  if not ends or tonumber(ends) <= now_ms then
    return nil
  end
  return cjson.decode(record)
end


local found = read_keyed(digits)
if not found or found.owner ~= owner or found.ended then
  return { 'lost' }
end
found.lease = now_ms + lease_ms
if named ~= '' then
  found.named, found.kept = named, kept
end
if calls > 0 then
  found.calls = calls
end
do
  local record, kept_ms = found, kept_ms
  redis.call('HSET', keyed, digits, cjson.encode(record))
  redis.call('ZADD', untils, now_ms + kept_ms, digits)
  for _, each in ipairs({ keyed, untils }) do
    redis.call('PEXPIRE', each, math.max(kept_ms, redis.call('PTTL', each)))
  end
end
return { 'ok' }
