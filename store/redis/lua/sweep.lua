-- Remove trees that are forgotten or unused for too long, and tombstones whose run never ended.
--
-- Keys:      usage, leaves, trees
-- Arguments: only     TENANT/ROOT of the one tree to sweep, or '' for all
--            idle_us  for how long a tree may be unused; 0: for ever
--            budget   the most turns that this call removes
-- Result:    {'ok'} when none is left | {'again'} when some may be
-- Invariant: takes nothing of a tree that somebody may still know.

local since, now = gone_since(idle_us), now_ms()

local function leaf_of_a_tree_that_is_gone()
  local member = only
  if only == '' then
    member = redis.call('ZRANGE', trees, 0, 0)[1]
  end
  local used = tonumber(member and redis.call('ZSCORE', trees, member) or nil)
  if not used or used > since then
    return nil
  end
  local tenant, root = split(member)
  if used > 0 and has_jobs(tenant, root) then -- it is in use; the next call checks others first
    redis.call('ZADD', trees, next_score(shard_key('clock')), member)
    budget = budget - 1
    if budget > 0 then
      return leaf_of_a_tree_that_is_gone()
    end
    return nil
  end
  return tenant, redis.call('SRANDMEMBER', key('tree', tenant, root))
end

local function unneeded_tombstone()
  local member = only == '' and redis.call('ZRANGE', leaves, '-inf', now, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if member then
    return split(member)
  end
end

while budget > 0 do
  local tenant, digits = leaf_of_a_tree_that_is_gone()
  if not digits then
    tenant, digits = unneeded_tombstone()
  end
  if not digits then
    record(usage)
    return { 'ok' }
  end
  budget = budget - take(tenant, digits, budget)
end
record(usage)
return { 'again' }
