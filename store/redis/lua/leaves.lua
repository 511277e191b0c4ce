--- include orders
--- include usage
-- Shared by the scripts that change which turns have no children: their places in the order of eviction.
-- Invariant: a turn without children that can be read is in the order of its tenant, leaves:TENANT, by its last use. A
-- tombstone without children is among `tombstones`, by the ms from when on nothing needs it. No other turn is in either.

local function place_leaf(tenant, digits, score)
  count(tenant, 'bytes', LEAF_BYTES * redis.call('ZADD', leaves_of(tenant), score, digits))
end

local function place_tombstone(tenant, digits, unpinned)
  local added = redis.call('ZADD', shard_key('tombstones'), unpinned, tenant .. '/' .. digits)
  count(tenant, 'bytes', LEAF_BYTES * added)
end

-- Take a turn's place away, which is among the tombstones if it was deleted.
local function displace_leaf(tenant, digits, deleted)
  local gone
  if deleted then
    gone = redis.call('ZREM', shard_key('tombstones'), tenant .. '/' .. digits)
  else
    gone = redis.call('ZREM', leaves_of(tenant), digits)
  end
  count(tenant, 'bytes', -LEAF_BYTES * gone)
end
