--- include keyed
-- Stay the one who makes what a request with an Idempotency-Key asks for, perhaps saying as what it will be stored.
--
-- Keys:      clock
-- Arguments: owner     the token of who makes it
--            named     the digits as which it will be stored, or ''
--            kept      yes if it will be stored, else no; of no account without `named`
--            calls     how many calls that may have an effect it begins or has begun, or 0 to say nothing of that
--            lease_ms  for how long he is not taken for dead
--            kept_ms   for how long it is known after its end
-- Result:    {'ok'} | {'lost'} when another one makes it, or it was made, or nothing is known of it
-- Invariant: it is known as what it will be stored before anything of it is. A retry is 'ok'.

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
write_keyed(found, kept_ms)
return { 'ok' }
