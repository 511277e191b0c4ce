--- include keyed
-- End what a request with an Idempotency-Key asked for: it was made, or nothing was, so that the next one may make it.
--
-- Keys:      clock
-- Arguments: owner    the token of who made it
--            made     1 if it was made, else 0
--            kept_ms  for how long it is known from now on
-- Result:    {'ok'} | {'lost'} when another one makes it, or nothing is known of it
-- Invariant: nothing is known of what was not made, unless somebody else may still store it, or it began a call that may
--            have an effect: then it will be made as what that one has named. Whoever waits is told.

local found = read_keyed(digits)
if not found or found.owner ~= owner then
  return { 'lost' }
end
if made == '1' then
  found.ended = true
  write_keyed(found, kept_ms)
elseif found.shared or found.calls then
  found.lease = 0
  write_keyed(found, kept_ms)
else
  drop_keyed(digits)
end
redis.call('SPUBLISH', key('keyed', tenant, digits), '')
return { 'ok' }
