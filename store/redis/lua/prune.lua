--- include orders
--- include removal
-- Let go of a pin, where one is named, and take away the tombstones that nothing needs then: this turn, and each above it that
-- loses its last child.
--
-- Arguments: pin     the token, or ''
--            budget  the most turns that this call removes
-- Result:    {'ok', the digits of the turn with which to go on, or ''}
-- Invariant: takes only what is deleted and has neither a child nor a live pin, so a retry after a lost reply changes nothing.
--            Other pins stay; a pin that is gone already is no error. Of a conversation its tip's goes, too.

local root, deleted, children, parent =
  unpack(redis.call('HMGET', node, 'root', 'deleted', 'children', 'parent'))
if root and pin ~= '' then
  redis.call('ZREM', key('pins', tenant, digits), pin)
  redis.call('ZREM', key('runs', tenant, root), pin)
  if is_conversation(digits) then
    redis.call('ZREM', key('pins', tenant, parent), pin)
  end
end
local left = ''
if deleted and children == '0' and not held_for_a_run('pins', tenant, digits) then
  left = select(2, take(tenant, digits, budget))
end
record()
return { 'ok', left }
