--- include facts
--- include leaves
--- include pins
--- include trees
-- Shared by the scripts that repair: the place of a turn among the leaves of a tree, and in the order of eviction; and
-- that of a tree in the order of trees.
-- Invariant: a key of another type stays as it is; what is amiss then is found in the next round.

local function place(tenant, root, digits)
  local set = key('tree', tenant, root)
  if is('set', set) or is('none', set) then
    redis.call('SADD', set, digits)
  end
end

local function displace(tenant, root, digits)
  local set = key('tree', tenant, root or '')
  if is('set', set) then
    redis.call('SREM', set, digits)
  end
end

local function unplace(turn)
  for _, deleted in ipairs({ true, false }) do
    if deleted or is('zset', leaves_of(turn.tenant)) then
      displace_leaf(turn.tenant, turn.digits, deleted)
    end
  end
end

-- Give a turn without children the place that it has by its last use, and no other.
local function replace(turn, deleted, touched)
  unplace(turn)
  if deleted then
    place_tombstone(turn.tenant, turn.digits, unpinned_from(key('pins', turn.tenant, turn.digits)))
  elseif is('zset', leaves_of(turn.tenant)) or is('none', leaves_of(turn.tenant)) then
    place_leaf(turn.tenant, turn.digits, exact(touched))
  end
end

local function has_an_order(tenant)
  return is('zset', trees_of(tenant)) or is('none', trees_of(tenant))
end

local function order(turn, score)
  if has_an_order(turn.tenant) then
    place_tree(turn.tenant, turn.digits, score)
  end
end

local function unorder(turn)
  if has_an_order(turn.tenant) then
    displace_tree(turn.tenant, turn.digits)
  end
end
