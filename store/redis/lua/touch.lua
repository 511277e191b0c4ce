-- Mark a turn as used now, because its response is about to be read.
--
-- Keys:      node, job, clock, leaves, trees
-- Arguments: idle_us  for how long a tree may be unused; 0: for ever
-- Result:    {'ok', its status, its mode in the background or '', 1 if it is under way, 1 if it has events to be read}
--            | {'missing'}
-- Invariant: a turn that is missing or deleted is not touched.

local root, deleted, status, background, log_bytes =
  unpack(redis.call('HMGET', node, 'root', 'deleted', 'status', 'background', 'log_bytes'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
touch(root)
local under_way = background and redis.call('EXISTS', job) == 1
return { 'ok', status, background or '', under_way and 1 or 0, (under_way or log_bytes) and 1 or 0 }
