--- include idle
--- include walk
-- The ids from a turn to its root, whatever its status, and nothing else: no touch, no pin.
--
-- Result:    {'ok', digits of the ids newest first, in one string} | {'missing'}
-- Invariant: nothing changes.

local root, deleted, depth = unpack(call('HMGET', node, 'root', 'deleted', 'depth'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
return { 'ok', walk(tenant, digits, tonumber(depth)) }
