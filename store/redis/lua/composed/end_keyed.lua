#!lua flags=allow-oom
local clock = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local owner = ARGV[4]; local made = ARGV[5]; local kept_ms = tonumber(ARGV[6])
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
if not found or found.owner ~= owner then
  return { 'lost' }
end
if made == '1' then
  found.ended = true
  do
    local record, kept_ms = found, kept_ms
    redis.call('HSET', keyed, digits, cjson.encode(record))
    redis.call('ZADD', untils, now_ms + kept_ms, digits)
    for _, each in ipairs({ keyed, untils }) do
      redis.call('PEXPIRE', each, math.max(kept_ms, redis.call('PTTL', each)))
    end
  end
elseif found.shared or found.calls then
  found.lease = 0
  do
    local record, kept_ms = found, kept_ms
    redis.call('HSET', keyed, digits, cjson.encode(record))
    redis.call('ZADD', untils, now_ms + kept_ms, digits)
    for _, each in ipairs({ keyed, untils }) do
      redis.call('PEXPIRE', each, math.max(kept_ms, redis.call('PTTL', each)))
    end
  end
else
  do
    local digits = digits
    redis.call('HDEL', keyed, digits)
    redis.call('ZREM', untils, digits)
  end
end
do
  redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'keyed' .. ':' .. digits), '')
end
return { 'ok' }
