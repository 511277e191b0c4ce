-- Shared by the scripts that know where releases before decision 45 kept what is now kept for each tenant: leaves and
-- tombstones of all tenants in `leaves`, and a tenant's counters as FIELD/TENANT in `usage`. Their processes may run beside
-- ours for a while, and find only that. This file goes, with what calls it, once no store is upgraded from such a release.
-- Invariant: what is in `leaves` is not in its tenant's order, unless an older release put it there again; and a
-- counter is the sum of both places. `leaves` is where an older release looks for what it evicts, so nothing is moved out of
-- it before none has written there for a while (adopting.lua): with only its newest turns left it would evict those.

local former = plain and 0 or redis.call('ZCARD', shard_key('leaves')) -- how many places are left in `leaves`

local function leave_former(tenant, digits)
  if former > 0 then
    former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
  end
end
