--- include clock
--- include orders
-- Shared by the scripts that use trees.
-- Invariant: a tree has the same score in `trees`, among those of all tenants, as in trees:TENANT.

-- XX: what is there is used; a tree that is gone must not come back by that.
local function use_tree(tenant, root, score)
  call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
  call('ZADD', trees_of(tenant), 'XX', score, root)
end

-- A turn is used. XX: an inner turn has no place among the leaves and must not get one by being used; its own score counts
-- once it is a leaf.
local function touch(root)
  local score = next_score(clock)
  call('HSET', node, 'touched', score)
  call('ZADD', leaves_of(tenant), 'XX', score, digits)
  use_tree(tenant, root, score)
end
