-- Shared by the scripts that use, add or remove trees: their places in the order of use.
-- Invariant: a tree is in `trees`, among those of all tenants, and in trees:TENANT, at the same score: both are
-- written here alone. A tree that an older release placed or used stands in `trees` alone, or in the other
-- where it stood, until a new turn or a sweep puts it right (adopting.lua).

local function trees_of(tenant)
  return trees .. ':' .. tenant
end

-- XX: what is there is used; a tree that is gone must not come back by that.
local function use_tree(tenant, root, score)
  redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
  redis.call('ZADD', trees_of(tenant), 'XX', score, root)
end

local function place_tree(tenant, root, score)
  redis.call('ZADD', trees, score, tenant .. '/' .. root)
  count(tenant, 'bytes', INDEXED_BYTES * redis.call('ZADD', trees_of(tenant), score, root))
end

local function displace_tree(tenant, root)
  redis.call('ZREM', trees, tenant .. '/' .. root)
  count(tenant, 'bytes', -INDEXED_BYTES * redis.call('ZREM', trees_of(tenant), root))
end

-- A turn is used. XX: an inner turn has no place among the leaves and must not get one by being used; its own score counts
-- once it is a leaf.
local function touch(root)
  local score = next_score(clock)
  redis.call('HSET', node, 'touched', score)
  redis.call('ZADD', leaves .. ':' .. tenant, 'XX', score, digits)
  use_tree(tenant, root, score)
end
