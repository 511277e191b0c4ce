--- include pins
-- Shared by the scripts about requests with an Idempotency-Key: what is known of one, by the digits that its key becomes.
--
-- A record is JSON: `body`, a digest of the request's body; `owner`, the token of who makes what it asks for; `lease`, the ms
-- at which he is taken for dead; `named`, the digits as which that is stored, once they are chosen, and `kept`, whether it is
-- stored; `calls`, how many calls that may have an effect were begun for it; `shared` where somebody had it before who had named it, and may still store it; `ended` where it was made.
-- Arguments: owner     the token of who makes it
--            lease_ms  for how long he is not taken for dead
--            kept_ms   for how long it is known after its end
-- Invariant: a record has its place in the order of their ends, and both expire.

local AHEAD_MS = 5400000 -- no lease is longer: one that ends later was made when the clock was ahead

local keyed, untils

local function begin_keyed()
  keyed, untils = shard_key('keyed:' .. tenant), shard_key('keyed-until:' .. tenant)
end

local function drop_keyed(digits)
  call('HDEL', keyed, digits)
  call('ZREM', untils, digits)
end

local function read_keyed(digits)
  local record = call('HGET', keyed, digits)
  local ends = record and call('ZSCORE', untils, digits)
  if not ends or tonumber(ends) <= now_ms then
    return nil
  end
  return cjson.decode(record)
end

local function write_keyed(record, kept_ms)
  call('HSET', keyed, digits, cjson.encode(record))
  call('ZADD', untils, now_ms + kept_ms, digits)
  for _, each in ipairs({ keyed, untils }) do
    call('PEXPIRE', each, math.max(kept_ms, call('PTTL', each)))
  end
end

local function is_made_now(record)
  return not record.ended and record.lease > now_ms and record.lease <= now_ms + AHEAD_MS
end

-- Forget what is over, and what ended first, until no more are left than so many; some at a time.
local function forget_keyed(most)
  for _, each in ipairs(call('ZRANGE', untils, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100)) do
    drop_keyed(each)
  end
  local excess = math.min(100, call('HLEN', keyed) - most)
  for _, each in ipairs(excess > 0 and call('ZRANGE', untils, 0, excess - 1) or {}) do
    if is_made_now(cjson.decode(call('HGET', keyed, each))) then
      return
    end
    drop_keyed(each)
  end
end
