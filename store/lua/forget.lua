-- Delete a turn as far as anyone can see: it becomes a tombstone, without its response. Whether anything
-- still needs the rest is for prune.lua, which is called next.
--
-- Keys:      node      the turn's node
--            response  the turn's response
--            usage     the shard's usage
-- Arguments: nodes     what all nodes of the tenant begin with
--            tenant    the tenant
--            digits    the turn's digits
--            token     names this call, so that its repeat after a lost reply is known
-- Result:    {'ok', path} | {'deleted', path} when another call did it, and may have been cut short |
--            {'missing', ''}; path is what to prune: the digits up to the root, newest first, or '' if it has a child
-- Invariant: a tombstone keeps its node and messages, its place and its pins; its response is gone.

local turn = redis.call('HMGET', node, 'root', 'deleted', 'response_bytes', 'children', 'depth')
local root, deleted, bytes, children, depth = unpack(turn)
if not root then
  return { 'missing', '' }
end
local path = ''
if children == '0' then
  path = walk(nodes, digits, tonumber(depth))
end
if deleted then
  return { deleted == token and 'ok' or 'deleted', path }
end
redis.call('HSET', node, 'deleted', token, 'response_bytes', 0)
redis.call('UNLINK', response)
count(usage, tenant, { responses = -1, tombstones = 1, bytes = -bytes })
return { 'ok', path }
