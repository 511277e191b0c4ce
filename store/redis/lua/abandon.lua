--- include elsewhere
--- include idle
--- include using
-- Forget a tree: none of its ids is known from now on. sweep.lua removes what is here of it.
--
-- Result:    {'ok', digits of its root} | {'missing'} | {'deleted'} when another call did it |
--            {'running'} when the run of one of its turns hasn't ended | {'outdated'} when the archive has to be asked again
-- Invariant: a tree with the score 0 is forgotten, whatever pins there are, and nothing changes that score.

local root, deleted = unpack(call('HMGET', node, 'root', 'deleted'))
local is_here = root
root = root or archived_root
local root_node, word = key('node', tenant, root), 'ok'
if call('HGET', root_node, 'abandoned') == token then
  return { 'ok', root }
elseif root == '' or (is_here and (deleted or gone(tenant, root, idle_us))) then
  return { 'missing' }
elseif has_jobs(tenant, root) then
  return { 'running' }
elseif is_here then
  note_unarchived(tenant, root, '*' .. root, next_score(shard_key('clock')))
else
  word = note_gone('*' .. root)
end
if word == 'ok' and call('EXISTS', root_node) == 1 then
  call('HSET', root_node, 'abandoned', token)
  use_tree(tenant, root, 0)
end
return { word, root }
