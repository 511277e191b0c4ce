--- include orders
--- include usage
-- Shared by the scripts that add or remove trees: their places in the order of use.
-- Invariant: a tree is in `trees`, among those of all tenants, and in trees:TENANT, at the same score (using.lua).

local function place_tree(tenant, root, score)
  redis.call('ZADD', trees, score, tenant .. '/' .. root)
  count(tenant, 'bytes', INDEXED_BYTES * redis.call('ZADD', trees_of(tenant), score, root))
end

local function displace_tree(tenant, root)
  redis.call('ZREM', trees, tenant .. '/' .. root)
  count(tenant, 'bytes', -INDEXED_BYTES * redis.call('ZREM', trees_of(tenant), root))
end
