--- include pins
-- Note that a response has asked for approvals, so that each can be used up once.
--
-- Arguments: asked    NUMBER/DIGEST of each, with spaces between: four hex digits, and what is known of its call
--            kept_ms  for how long an approval may be used
--            most     how many approvals of the tenant the shard notes
-- Result:    {'ok'}
-- Invariant: what was asked, or used, before stays as it is. The oldest go for new ones, and whatever is too old to be used;
--            what isn't noted can't be used.

local asking, using = shard_key('approvals:' .. tenant), shard_key('approved:' .. tenant)

local function drop(members)
  for _, member in ipairs(members) do
    call('ZREM', asking, member)
    call('HDEL', using, string.match(member, '^%x+'))
  end
end

drop(call('ZRANGE', asking, '-inf', now_ms - kept_ms, 'BYSCORE', 'LIMIT', 0, 100))
for each in string.gmatch(asked, '%S+') do
  if not call('HGET', using, digits .. string.match(each, '^%x+')) then
    call('ZADD', asking, 'NX', now_ms, digits .. each)
  end
end
local excess = call('ZCARD', asking) - most
if excess > 0 then
  drop(call('ZRANGE', asking, 0, excess - 1))
end
call('PEXPIRE', asking, kept_ms)
return { 'ok' }
