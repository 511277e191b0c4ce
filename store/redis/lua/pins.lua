--- include clock
-- Shared by the scripts that ask whether a run is under way on a turn.
-- Arguments: not_after  the ms after which the caller has given up
-- Invariant: a pin past its time doesn't count, whether or not its key is still there.

local now_ms

local function begin_pins()
  now_ms = math.floor(now_us / 1000)
end

local function holds(pins, pin)
  local expiry = pin ~= '' and call('ZSCORE', pins, pin)
  return expiry and tonumber(expiry) > now_ms
end

local function pinned(pins)
  return call('ZCOUNT', pins, '(' .. now_ms, '+inf') > 0
end

-- Note that a run holds what these pins are of, for so long at most. Others' pins may count for longer.
local function hold(pins, pin, pin_ms)
  call('ZADD', pins, now_ms + pin_ms, pin)
  local left = call('PTTL', pins)
  if left ~= -1 then -- it was there, with pins that may be over
    call('ZREMRANGEBYSCORE', pins, '-inf', now_ms)
  end
  if left < pin_ms then
    call('PEXPIRE', pins, pin_ms)
  end
end

-- The digits of the job that a conversation waits for (submit.lua), or nil. One that is gone counts for nothing.
local function awaited(tenant, digits)
  local job = call('HGET', key('node', tenant, digits), 'awaits')
  return job and call('EXISTS', key('job', tenant, job)) == 1 and job or nil
end

-- From when on no run holds a turn, in ms; 0 if none ever did. Scores of uses are in µs, so they are all larger.
local function unpinned_from(pins)
  return call('ZRANGE', pins, -1, -1, 'WITHSCORES')[2] or 0
end
