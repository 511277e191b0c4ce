--- include queueing
-- Shared by the scripts that claim jobs: which of them is next, and whose lease ran out.
-- Invariant: that of queueing.lua.

local MOST_CANCELLED = 16 -- the most cancelled jobs that one call hands out to be ended
local LOOKED_MS = 3600000 -- for how long it is known when somebody last looked for leases that ran out
local MOST_READ = 500 -- the most tenants without jobs, and leases that ran out, which one call looks at
local MOST_TOLD = 8 -- the most tenants of a level of whose waiting jobs one call tells

-- The job that starts next at a level, taken out of its queue: its tenant, its digits and since when it waited there;
-- nothing where none waits.
local function next_at(level)
  local turn = level_key('turn', level)
  for _ = 1, MOST_READ do
    local tenant = redis.call('ZRANGE', turn, 0, 0)[1]
    if not tenant then
      return nil
    end
    local digits = redis.call('ZRANGE', level_key('line', level, tenant), 0, 0)[1]
    if digits then
      redis.call('ZADD', turn, redis.call('ZRANGE', turn, -1, -1, 'WITHSCORES')[2] + 1, tenant)
      return tenant, digits, dequeue(level, tenant, digits)
    end
    redis.call('ZREM', turn, tenant)
  end
end

-- The tenants that are the next at each level, as far as jobs of theirs wait: TENANT, the level, how many, and for how many
-- ms the first has waited; with spaces between.
local function next_tenants()
  local found = {}
  for level = 0, LEVELS - 1 do
    for _, tenant in ipairs(redis.call('ZRANGE', level_key('turn', level), 0, MOST_TOLD - 1)) do
      local line = level_key('line', level, tenant)
      local digits = redis.call('ZRANGE', line, 0, 0)[1]
      local since = digits and redis.call('ZSCORE', level_key('queued', level), tenant .. '/' .. digits)
      if since then
        found[#found + 1] =
          string.format('%s %d %d %s', tenant, level, redis.call('ZCARD', line), exact(now_ms - since))
      end
    end
  end
  return found
end

-- Leases that ran out, and those that end later than a lease from now could, as the clock was stepped back since: a living
-- holder renews its lease, and a dead one must not keep the job until then. Others' leases may be longer than the caller's.
local function late_leases(lease_ms)
  local leases = shard_key('leases')
  local late = redis.call('ZRANGE', leases, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, MOST_READ)
  local ahead =
    redis.call('ZRANGE', leases, now_ms + 2 * lease_ms, '+inf', 'BYSCORE', 'LIMIT', 0, MOST_READ, 'WITHSCORES')
  for at = 1, #ahead, 2 do
    local own_ms = redis.call('HGET', key('job', split(ahead[at])), 'lease_ms') or 0
    if tonumber(ahead[at + 1]) >= now_ms + 2 * own_ms then
      late[#late + 1] = ahead[at]
    end
  end
  return late
end

-- Whether a lease ended in a silence of the server itself: nobody has looked for such leases since `looked`, for longer
-- than half of it, as when the server stands still or its clock is stepped forward. Its holder could not renew it, and gets
-- half a lease to do so; once, until it is heard of again. One that was never heard of may not even know that it holds it.
local function spare(leases, member, looked)
  local ended, job = tonumber(redis.call('ZSCORE', leases, member)), key('job', split(member))
  local heard, own_ms = unpack(redis.call('HMGET', job, 'heard', 'lease_ms'))
  local grace = (own_ms or 0) / 2
  if grace == 0 or not looked or ended <= looked or ended > now_ms or now_ms - looked <= grace or (heard and heard ~= 'yes') then
    return false
  end
  redis.call('HSET', job, 'heard', 'spared')
  redis.call('ZADD', leases, now_ms + grace, member)
  return true
end

-- Put jobs whose lease ran out back into the queue, but not cancelled ones, which only have to be ended. How many there
-- are in all, and some of the cancelled ones.
local function rescue(lease_ms)
  local rescued, cancelled = 0, {}
  local looked = tonumber(redis.call('SET', shard_key('looked'), exact(now_ms), 'PX', LOOKED_MS, 'GET') or nil)
  for _, member in ipairs(late_leases(lease_ms)) do
    local tenant, digits = split(member)
    if not spare(shard_key('leases'), member, looked) then
      rescued = rescued + 1
      if redis.call('HGET', key('node', tenant, digits), 'status') ~= 'cancelled' then
        put_back(tenant, digits)
      elseif #cancelled < MOST_CANCELLED then
        cancelled[#cancelled + 1] = member
      end
    end
  end
  return rescued, cancelled
end
