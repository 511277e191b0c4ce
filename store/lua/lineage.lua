-- The ids from a turn to its root, whatever its status, and nothing else: no touch, no pin.
--
-- Keys:      node      the turn's node
-- Arguments: nodes     what all nodes of the tenant begin with
--            digits    the turn's digits
-- Result:    {'ok', digits of the ids newest first, in one string} | {'missing'}
-- Invariant: nothing changes.

local root, deleted, depth = unpack(redis.call('HMGET', node, 'root', 'deleted', 'depth'))
if not root or deleted then
  return { 'missing' }
end
return { 'ok', walk(nodes, digits, tonumber(depth)) }
