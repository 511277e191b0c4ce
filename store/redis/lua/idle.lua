-- Shared by the scripts that ask whether a tree is still there for anyone.
-- Invariant: a tree that was forgotten has the score 0, and never another. One that is gone, or was not used for
-- `idle_us` where that isn't 0, is unknown from then on, before the sweeper takes it away; none of it is kept by a pin.
-- A tree with a job is never idle, however long that waits; its root counts its jobs.

local function has_jobs(tenant, root)
  return redis.call('HEXISTS', key('node', tenant, root), 'jobs') == 1
end

local function gone(tenant, root, idle_us)
  local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us() - idle_us) then
    return false
  end
  return used == 0 or not has_jobs(tenant, root)
end
