--- include keyed
-- Stay the one who makes what a request with an Idempotency-Key asks for, perhaps saying as what it will be stored; or end that:
-- it was made, or nothing was, so that the next one may make it.
--
-- Arguments: ends   made or unmade where it ends; else ''
--            named  the digits as which it will be stored, or ''
--            kept   yes if it will be stored, else no; of no account without `named`
--            calls  how many calls that may have an effect it begins or has begun, or 0 to say nothing of that
-- Result:    {'ok'} | {'lost'} when another one makes it, or it was made, or nothing is known of it
-- Invariant: it is known as what it will be stored before anything of it is. A retry is 'ok'. Nothing is known of what was not
--            made, unless somebody else may still store it, or it began a call that may have an effect: then it will be made
--            as what that one has named. Whoever waits is told of the end.

local found = read_keyed(digits)
if not found or found.owner ~= owner or (found.ended and ends == '') then
  return { 'lost' }
end
found.lease = ends == '' and now_ms + lease_ms or 0
found.ended = ends == 'made' or nil
if named ~= '' then
  found.named, found.kept = named, kept
end
if calls > 0 then
  found.calls = calls
end
if ends == 'unmade' and not (found.shared or found.calls) then
  drop_keyed(digits)
else
  write_keyed(found, kept_ms)
end
if ends ~= '' then
  call('SPUBLISH', key('keyed', tenant, digits), '')
end
return { 'ok' }
