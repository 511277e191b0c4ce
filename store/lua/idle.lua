-- Shared by the scripts that ask whether a tree is still there for anyone.
-- Invariant: a tree that was forgotten has the score 0, and never another. One that is gone, or was not used for
-- `idle_us` where that isn't 0, is unknown from then on, before the sweeper takes it away; none of it is kept by a pin.

local function gone_since(idle_us)
  return idle_us > 0 and now_us() - idle_us or 0
end

local function gone(trees, tenant, root, idle_us)
  local used = redis.call('ZSCORE', trees, tenant .. '/' .. root)
  return not used or tonumber(used) <= gone_since(idle_us)
end
