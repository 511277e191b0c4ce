--- include orders
--- include usage
-- Shared by the scripts that change which turns have no children, which trees there are, or which conversations.
-- Invariant: a turn without children that can be read is in the order of its tenant, leaves:TENANT, by its last use. A
-- tombstone without children is among `tombstones`, by the ms from when on nothing needs it. No other turn is in either. A tree
-- is in `trees`, among those of all tenants, and in trees:TENANT, at the same score (using.lua). A conversation that was not
-- deleted is in conversations:TENANT, by the µs at which it began, and nothing else is. One whose tree is forgotten or idle stays
-- in it until it is taken away: so who reads it asks (idle.lua).

local function place_leaf(tenant, digits, score)
  count(tenant, 'bytes', LEAF_BYTES * call('ZADD', leaves_of(tenant), score, digits))
end

local function place_tombstone(tenant, digits, unpinned)
  local added = call('ZADD', shard_key('tombstones'), unpinned, tenant .. '/' .. digits)
  count(tenant, 'bytes', LEAF_BYTES * added)
end

-- Take a turn's place away, which is among the tombstones if it was deleted.
local function displace_leaf(tenant, digits, deleted)
  local place, member = leaves_of(tenant), digits
  if deleted then
    place, member = shard_key('tombstones'), tenant .. '/' .. digits
  end
  count(tenant, 'bytes', -LEAF_BYTES * call('ZREM', place, member))
end

local function place_tree(tenant, root, score)
  call('ZADD', trees, score, tenant .. '/' .. root)
  count(tenant, 'bytes', TREE_BYTES * call('ZADD', trees_of(tenant), score, root))
end

local function displace_tree(tenant, root)
  call('ZREM', trees, tenant .. '/' .. root)
  count(tenant, 'bytes', -TREE_BYTES * call('ZREM', trees_of(tenant), root))
end

local function enlist(tenant, digits, created)
  count(tenant, 'bytes', LISTED_BYTES * call('ZADD', list_of(tenant), created, digits))
end

local function unlist(tenant, digits)
  count(tenant, 'bytes', -LISTED_BYTES * call('ZREM', list_of(tenant), digits))
end
