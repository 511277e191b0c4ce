--- include keyed
-- Take what a request with an Idempotency-Key asks for, to make it; or say what became of an earlier one with its key.
--
-- Arguments: body       a digest of the request's body
--            most       how many keys of the tenant the shard knows
-- Result:    {'mine', the digits as which an earlier one may have stored it, or '', how many calls that may have an effect
--            that one began} | {'theirs'} while another one makes it | {'made', digits} | {'untold'} where it was made, or is, and isn't stored | {'other'} where the body was another
--            one | {'full'} when all that are known are being made | {'late', the ms on this clock}
-- Invariant: one at a time has it. Who takes it from one that died, makes it as what that one has named. What is being made
--            stays known; for a new one those go that ended first. A retry is 'mine'.

if now_ms > not_after then
  return { 'late', exact(now_ms) }
end
local found = read_keyed(digits)
if found and found.body ~= body then
  if found.named or is_made_now(found) then
    return { 'other' }
  end
  found = nil
end
if found and found.owner ~= owner then
  if found.kept == 'no' and (found.ended or is_made_now(found)) then
    return { 'untold' }
  elseif found.ended then
    return { 'made', found.named }
  elseif is_made_now(found) then
    return { 'theirs' }
  end
end
if not found then
  drop_keyed(digits)
  forget_keyed(most - 1)
  if call('HLEN', keyed) >= most then
    return { 'full' }
  end
  found = {}
end
write_keyed({ body = body, owner = owner, lease = now_ms + lease_ms, named = found.named, kept = found.kept,
  calls = found.calls, shared = found.shared or (found.named and found.owner ~= owner) or nil }, kept_ms)
return { 'mine', found.named or '', exact(found.calls or 0) }
