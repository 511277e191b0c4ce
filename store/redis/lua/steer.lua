--- include held
--- include idle
--- include queueing
-- Say something to a background response that is under way: whoever ends it makes it the input of the next one, or gives it
-- back.
--
-- Arguments: id          names what is said
--            said        its bytes
--            most        the most that may be said to one response
--            most_bytes  the most bytes of all of it
-- Result:    {'ok'} | {'missing'} | {'ended', its status} when it has ended or was cancelled | {'unsteerable'} | {'many'} when there is no room for more
-- Invariant: said once: a retry is 'ok' and changes nothing, also when the response has ended since.

local root, deleted, status, known, held =
  unpack(call('HMGET', node, 'root', 'deleted', 'status', 'steers', 'held'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
local epoch, token, steerable, steers, bytes =
  unpack(call('HMGET', job, 'epoch', 'token', 'steerable', 'steers', 'steer_bytes'))
if string.find(known or steers or '', id, 1, true) then
  return { 'ok' }
elseif not epoch or status == 'cancelled' then
  return { 'ended', status }
elseif not steerable then
  return { 'unsteerable' }
end
local _, before = string.gsub(steers or '', '%S+', '')
if before >= most or (bytes or 0) + #said > most_bytes then
  return { 'many' }
end
call('HSET', job, 'steers', steers and steers .. ' ' .. id or id, 'steer_bytes', (bytes or 0) + #said, 'said:' .. id, said)
note_held(tenant, digits, held, held + SAID_BYTES + #said)
record()
if token ~= '' then
  tell_workers('steered ' .. tenant .. '/' .. digits)
end
return { 'ok' }
