-- Let go of a pin: its run ended without a turn.
--
-- Keys:      node      the turn's node
--            pins      the turn's pins
-- Arguments: nodes     what all nodes of the tenant begin with
--            runs      what all pins of trees of the tenant begin with
--            digits    the turn's digits
--            pin       the token
-- Result:    {'ok', path}: what to prune when the turn is deleted, as the pin may have been all that kept it: the
--            digits up to the root, newest first; or ''
-- Invariant: other pins stay; a pin that is gone already is no error.

redis.call('ZREM', pins, pin)
local turn = redis.call('HMGET', node, 'root', 'deleted', 'children', 'depth')
local root, deleted, children, depth = unpack(turn)
if root then
  redis.call('ZREM', runs .. root, pin)
end
local path = ''
if deleted and children == '0' then
  path = walk(nodes, digits, tonumber(depth))
end
return { 'ok', path }
