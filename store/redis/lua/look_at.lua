--- include idle
-- Shared by the scripts that say how a turn stands.
-- Invariant: nothing changes.

-- The reply about the turn, and its root; nil if it is missing or deleted.
local function looked_at(idle_us)
  local root, deleted, status, background, log_bytes =
    unpack(redis.call('HMGET', node, 'root', 'deleted', 'status', 'background', 'log_bytes'))
  if not root or deleted or gone(tenant, root, idle_us) then
    return nil
  end
  local under_way = background and redis.call('EXISTS', job) == 1
  return { 'ok', status, background or '', under_way and 1 or 0, (under_way or log_bytes) and 1 or 0 }, root
end
