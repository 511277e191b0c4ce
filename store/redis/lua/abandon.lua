--- include idle
--- include unarchived
--- include using
-- Forget a tree: none of its ids is known from now on. sweep.lua removes it.
--
-- Arguments: token  names this call, so that its retry after a lost reply is known
-- Result:    {'ok', digits of its root} | {'missing'} | {'running'} when the run of one of its turns hasn't ended
-- Invariant: a tree with the score 0 is forgotten, whatever pins there are, and nothing changes that score.

local root, deleted = unpack(redis.call('HMGET', node, 'root', 'deleted'))
if not root then
  return { 'missing' }
end
if redis.call('HGET', key('node', tenant, root), 'abandoned') == token then
  return { 'ok', root }
end
if deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
if has_jobs(tenant, root) then
  return { 'running' }
end
redis.call('HSET', key('node', tenant, root), 'abandoned', token)
use_tree(tenant, root, 0)
note_unarchived(tenant, root, '*' .. root, next_score(shard_key('clock')))
return { 'ok', root }
