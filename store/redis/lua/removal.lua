-- Shared by the scripts that take turns away, of any tenant of the shard.
-- Invariant: a turn whose last child goes is a leaf again, as recently used as it or that child was; but a tombstone has
-- the ms from when on nothing needs it for a score, so that it stands before all other leaves and sweep.lua finds it.

-- Most turns have no pins, and to find that out is cheaper than to count them.
local function held_for_a_run(family, tenant, digits)
  local pins = key(family, tenant, digits)
  return redis.call('EXISTS', pins) == 1 and pinned(pins)
end

-- A turn loses a child, used last at `touched`; whether nothing needs it any more.
local function leave(tenant, digits, root, touched)
  local node = key('node', tenant, digits)
  local children, own, deleted = unpack(redis.call('HMGET', node, 'children', 'touched', 'deleted'))
  if children ~= '1' then
    redis.call('HINCRBY', node, 'children', -1)
    return false
  end
  if tonumber(own) < tonumber(touched) then
    own = touched
  end
  redis.call('HSET', node, 'children', 0, 'touched', own)
  redis.call('ZADD', leaves, deleted and unpinned_from(key('pins', tenant, digits)) or own, tenant .. '/' .. digits)
  more_leaves = more_leaves + 1
  redis.call('SADD', key('tree', tenant, root), digits)
  return deleted and not held_for_a_run('pins', tenant, digits)
end

-- Take a leaf away with all that it has; its parent's digits, or '' of a root, and whether nothing needs that now.
local function remove(tenant, digits)
  local node = key('node', tenant, digits)
  local root, parent, deleted, held, touched, log_bytes =
    unpack(redis.call('HMGET', node, 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes'))
  local messages, response = key('messages', tenant, digits), key('response', tenant, digits)
  local pins, tree = key('pins', tenant, digits), key('tree', tenant, root)
  local member = tenant .. '/' .. digits
  redis.call('ZREM', leaves, member)
  more_leaves = more_leaves - 1
  count(tenant, deleted and 'tombstones' or 'responses', -1)
  count(tenant, 'bytes', -(held or 0)) -- none is noted in a store of release 0.1
  if log_bytes then
    drop_log(tenant, digits, log_bytes)
  end
  if parent == '' then
    redis.call('UNLINK', node, messages, response, pins, tree, key('runs', tenant, digits))
    redis.call('ZREM', trees, member)
    count(tenant, 'trees', -1)
    return '', false
  end
  redis.call('UNLINK', node, messages, response, pins)
  local unneeded = leave(tenant, parent, root, touched)
  redis.call('SREM', tree, digits)
  return parent, unneeded
end

-- Take a leaf away, and the tombstones above it that nothing needs then; how many turns that were, at most `budget`.
local function take(tenant, digits, budget)
  for taken = 1, budget do
    local parent, unneeded = remove(tenant, digits)
    if not unneeded then
      return taken
    end
    digits = parent
  end
  return budget
end
