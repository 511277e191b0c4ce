-- Use an approval up for one response, or only look whether it can be.
--
-- Keys:      clock
-- Arguments: number   four hex digits: which of those that the response asked for
--            digest   what its caller knows of the call
--            by       the digits of the response that makes the call, or '' to look
--            kept_ms  for how long an approval may be used
-- Result:    {'ok'} | {'again'} when that response has used it up before | {'used'} when another has | {'unknown'} when it
--            was never asked for, was for another call, or is too old
-- Invariant: it is used up by one response. Its digest goes, so that whatever else is lost gives it back to nobody.

local asking, using = shard_key('approvals:' .. tenant), shard_key('approved:' .. tenant)
local user = redis.call('HGET', using, digits .. number)
if user then
  return { user == by and 'again' or 'used' }
end
local member = digits .. number .. '/' .. digest
local asked = tonumber(redis.call('ZSCORE', asking, member) or 0)
if asked <= now_ms - kept_ms then
  return { 'unknown' }
end
if by ~= '' then
  redis.call('ZADD', asking, asked, digits .. number .. '/') -- first, so that the key is never empty and keeps its end
  redis.call('ZREM', asking, member)
  redis.call('HSET', using, digits .. number, by)
  redis.call('PEXPIRE', using, kept_ms)
end
return { 'ok' }
