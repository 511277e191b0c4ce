--- include idle
--- include pins
--- include using
-- Hold a conversation for one run, or for longer.
--
-- Arguments: token    names the run
--            hold_ms  for how long it is held from now on
-- Result:    {'ok'} | {'missing'} | {'held'} when another run holds it, or a job | {'late', the ms on this clock}
-- Invariant: one run at a time holds a conversation, or a job does until its end; a hold that is over counts for
--            nothing. A retry is 'ok'.

if now_ms > not_after then
  return { 'late', exact(now_ms) }
end
local root, deleted = unpack(call('HMGET', node, 'root', 'deleted'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
if (pinned(pins) and not holds(pins, token)) or awaited(tenant, digits) then
  return { 'held' }
end
touch(root)
hold(pins, token, hold_ms)
hold(key('runs', tenant, root), token, hold_ms)
return { 'ok' }
