#!lua
local clock = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local body = ARGV[4]; local owner = ARGV[5]; local lease_ms = tonumber(ARGV[6]); local kept_ms = tonumber(ARGV[7]); local most = tonumber(ARGV[8]); local not_after = tonumber(ARGV[9])
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

local function is_made_now(record)
  return not record.ended and record.lease > now_ms
end

local function forget_keyed(most)
  for _, each in ipairs(redis.call('ZRANGE', untils, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
    do
      local digits = each
      redis.call('HDEL', keyed, digits)
      redis.call('ZREM', untils, digits)
    end
  end
  local excess = math.min(100, redis.call('HLEN', keyed) - most)
  for _, each in ipairs(excess > 0 and redis.call('ZRANGE', untils, 0, excess - 1) or {}) do
    if is_made_now(cjson.decode(redis.call('HGET', keyed, each))) then
      return
    end
    do
      local digits = each
      redis.call('HDEL', keyed, digits)
      redis.call('ZREM', untils, digits)
    end
  end
end


if now_ms > not_after then
  return { 'late', (string.format('%.0f', now_ms)) }
end
local found = read_keyed(digits)
if found and found.body ~= body then
  if found.named or (not found.ended and found.lease > now_ms) then
    return { 'other' }
  end
  found = nil
end
if found and found.owner ~= owner then
  if found.kept == 'no' and (found.ended or (not found.ended and found.lease > now_ms)) then
    return { 'untold' }
  elseif found.ended then
    return { 'made', found.named }
  elseif (not found.ended and found.lease > now_ms) then
    return { 'theirs' }
  end
end
if not found then
  do
    local digits = digits
    redis.call('HDEL', keyed, digits)
    redis.call('ZREM', untils, digits)
  end
  forget_keyed(most - 1)
  if redis.call('HLEN', keyed) >= most then
    return { 'full' }
  end
  found = {}
end
do
  local record, kept_ms = {
  body = body,
  owner = owner,
  lease = now_ms + lease_ms,
  named = found.named,
  kept = found.kept,
  calls = found.calls,
  shared = found.shared or (found.named and found.owner ~= owner) or nil,
}, kept_ms
  redis.call('HSET', keyed, digits, cjson.encode(record))
  redis.call('ZADD', untils, now_ms + kept_ms, digits)
  for _, each in ipairs({ keyed, untils }) do
    redis.call('PEXPIRE', each, math.max(kept_ms, redis.call('PTTL', each)))
  end
end
return { 'mine', found.named or '', (string.format('%.0f', (found.calls or 0))) }
