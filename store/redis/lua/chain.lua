--- include idle
--- include pins
--- include using
--- include walk
-- The ids of the chain that a turn ends, to continue it: checks that it may be, touches it, and pins it if
-- asked to.
--
-- Arguments: pin           the token to pin it with, or '' for no pin; of a conversation it pins its tip, and isn't its hold
--            pin_ms        for how long the pin counts
--            max_depth     the most turns of a chain
--            max_messages  how many messages a chain has that can't be continued; 0: any number can
--            max_bytes     how many bytes of messages a chain has that can't be continued
--            max_held      how many bytes the server holds for a chain that can't be continued; 0: any number can
--            under_way     1 for whoever makes the response, to read its chain before it has ended; else 0
-- Result:    {'ok', digits of the ids newest first, in one string, '1' if messages in this tree were erased, else ''} |
--            {'missing'} | {'status', its status} | {'long'} | {'late', the ms on this clock}
-- Invariant: a turn that is missing, deleted or may not be continued is neither touched nor pinned. A chain too
--            long to be continued can still be read without a pin.

if pin ~= '' and now_ms > not_after then
  return { 'late', exact(now_ms) }
end
local root, deleted, continuable, status, depth, chain_messages, chain_bytes, chain_held = unpack(call('HMGET', node,
  'root', 'deleted', 'continuable', 'status', 'depth', 'chain_messages', 'chain_bytes', 'chain_held'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
if continuable ~= '1' and under_way ~= '1' then
  return { 'status', status }
end
local long = tonumber(depth) >= max_depth or tonumber(chain_bytes) >= max_bytes
  or (max_messages > 0 and tonumber(chain_messages) >= max_messages)
  or (max_held > 0 and tonumber(chain_held or 0) >= max_held)
if pin ~= '' and long then
  return { 'long' }
end
local ids = walk(tenant, digits, tonumber(depth))
touch(root)
if pin ~= '' then
  local tip = is_conversation(digits) and call('HGET', node, 'parent')
  hold(tip and key('pins', tenant, tip) or pins, pin, pin_ms)
  hold(key('runs', tenant, root), pin, pin_ms)
end
local erased = call('HGET', key('node', tenant, root), 'has_erased') or ''
return { 'ok', ids, erased }
