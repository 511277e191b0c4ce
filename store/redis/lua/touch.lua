--- include idle
--- include using
-- How a turn stands; marks it as used now, because its response is about to be read. One under way is kept without that.
--
-- Arguments: touches  1 to mark it; 0 for who looks of itself, and for a server that takes no writes
-- Result:    {'ok', its status, its mode in the background or '', 1 if it is under way, 1 if it has events to be read, its
--            root} | {'missing'}
-- Invariant: a turn that is missing or deleted is not touched.

local root, deleted, status, background, log_bytes =
  unpack(call('HMGET', node, 'root', 'deleted', 'status', 'background', 'log_bytes'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
local under_way = background and call('EXISTS', job) == 1
if touches == '1' and not under_way then -- nothing evicts what is, nor makes it idle, so to ask for it often costs no write
  touch(root)
end
return { 'ok', status, background or '', under_way and 1 or 0, (under_way or log_bytes) and 1 or 0, root }
