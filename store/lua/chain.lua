-- The ids of the chain that a turn ends, to continue it: checks that it may be, touches it, and pins it if
-- asked to.
--
-- Keys:      node       the tip's node
--            pins       the tip's pins
--            clock      the shard's clock
--            leaves     the shard's leaves
--            trees      the shard's trees
-- Arguments: nodes      what all nodes of the tenant begin with
--            tenant     the tenant
--            tip        the tip's digits
--            pin        the token to pin it with, or '' for no pin
--            pin_ms     for how long the pin counts
--            max_depth  the most turns of a chain
--            max_bytes  the most bytes of messages in a chain that may be continued
-- Result:    {'ok', digits of the ids newest first, in one string} | {'missing'} | {'status', its status} | {'long'}
-- Invariant: a turn that is missing, deleted or may not be continued is neither touched nor pinned. A chain too
--            long to be continued can still be read without a pin.

local turn = redis.call('HMGET', node, 'root', 'deleted', 'continuable', 'status', 'depth', 'chain_bytes')
local root, deleted, continuable, status, depth, chain_bytes = unpack(turn)
if not root or deleted then
  return { 'missing' }
end
if continuable ~= '1' then
  return { 'status', status }
end
if pin ~= '' and (tonumber(depth) >= max_depth or tonumber(chain_bytes) >= max_bytes) then
  return { 'long' }
end
local ids = walk(nodes, tip, tonumber(depth))
touch(clock, leaves, trees, node, tenant, tip, root)
if pin ~= '' then
  local now = now_ms()
  redis.call('ZREMRANGEBYSCORE', pins, '-inf', now)
  redis.call('ZADD', pins, now + pin_ms, pin)
  if redis.call('PTTL', pins) < pin_ms then -- others' pins may count for longer
    redis.call('PEXPIRE', pins, pin_ms)
  end
end
return { 'ok', ids }
