--- include pins
-- Use an approval up for one response, or only look whether it can be.
--
-- Arguments: number   four hex digits: which of those that the response asked for
--            digest   what its caller knows of the call
--            by       the digits of the response that makes the call
--            run      names its run, or is '' to look
--            kept_ms  for how long an approval may be used
-- Result:    {'ok'} | {'again'} when that run has used it up before | {'begun'} when another run of that response has |
--            {'used'} when another response has | {'unknown'} when it was never asked for, was for another call, or is too old
-- Invariant: it is used up by one run. Its digest goes, so that whatever else is lost gives it back to nobody.

local asking, using = shard_key('approvals:' .. tenant), shard_key('approved:' .. tenant)
local user = call('HGET', using, digits .. number)
if user then
  local again = user == by .. '/' .. run and 'again' or string.sub(user, 1, #by + 1) == by .. '/' and 'begun'
  return { again or 'used' }
end
local member = digits .. number .. '/' .. digest
local asked = tonumber(call('ZSCORE', asking, member) or 0)
if asked <= now_ms - kept_ms then
  return { 'unknown' }
end
if run ~= '' then
  call('ZADD', asking, asked, digits .. number .. '/') -- first, so that the key is never empty and keeps its end
  call('ZREM', asking, member)
  call('HSET', using, digits .. number, by .. '/' .. run)
  call('PEXPIRE', using, kept_ms)
end
return { 'ok' }
