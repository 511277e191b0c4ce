-- Mark a turn as used now, because its response is about to be read.
--
-- Keys:      node      the turn's node
--            clock     the shard's clock
--            leaves    the shard's leaves
--            trees     the shard's trees
-- Arguments: tenant    the tenant
--            digits    the turn's digits
--            idle_us   for how long a tree may be unused; 0: for ever
-- Result:    {'ok'} | {'missing'}
-- Invariant: a turn that is missing or deleted is not touched.

local root, deleted = unpack(redis.call('HMGET', node, 'root', 'deleted'))
if not root or deleted or gone(trees, tenant, root, idle_us) then
  return { 'missing' }
end
touch(clock, leaves, trees, node, tenant, digits, root)
return { 'ok' }
