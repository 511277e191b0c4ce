-- Shared by the scripts that repair: the place of a turn among the leaves of a tree.
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
