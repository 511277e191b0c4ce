-- Delete a turn as far as anyone can see: it becomes a tombstone, without its response. Whether anything
-- still needs the rest is for prune.lua, which is called next.
--
-- Keys:      node      the turn's node
--            response  the turn's response
--            usage     the shard's usage
-- Arguments: tenant    the tenant
--            token     names this call, so that its repeat after a lost reply is known
-- Result:    {'ok'} | {'missing'}
-- Invariant: a tombstone keeps its node and messages, its place and its pins; its response is gone.

local root, deleted, bytes = unpack(redis.call('HMGET', node, 'root', 'deleted', 'response_bytes'))
if not root or (deleted and deleted ~= token) then
  return { 'missing' }
end
if not deleted then
  redis.call('HSET', node, 'deleted', token, 'response_bytes', 0)
  redis.call('UNLINK', response)
  count(usage, tenant, { responses = -1, tombstones = 1, bytes = -bytes })
end
return { 'ok' }
