--- include orders
--- include walk
-- Let go of a pin: its run ended without a turn.
--
-- Arguments: pin  the token
-- Result:    {'ok', path}: what to prune when the turn is deleted, as the pin may have been all that kept it: the
--            digits up to the root, newest first; or ''
-- Invariant: other pins stay; a pin that is gone already is no error. Of a conversation its tip's goes, too.

call('ZREM', pins, pin)
local tip = is_conversation(digits) and call('HGET', node, 'parent')
if tip then
  call('ZREM', key('pins', tenant, tip), pin)
end
local root, deleted, children, depth = unpack(call('HMGET', node, 'root', 'deleted', 'children', 'depth'))
if root then
  call('ZREM', key('runs', tenant, root), pin)
end
local path = ''
if deleted and children == '0' then
  path = walk(tenant, digits, tonumber(depth))
end
return { 'ok', path }
