-- Shared by the scripts that move jobs: into the queue, out of it, and from one holder to the next.
-- Invariant: a job waits at one level, or somebody holds its lease, never both and never neither. Its own fields are in
-- the head of submit.lua.
--
-- There is a queue for each level: 0 for jobs that had begun, then one for each priority. At a level each tenant has a
-- line, in the order in which its jobs came, and `turn` has the tenants in the order in which they take turns. One whose
-- job starts goes to the end; one that comes anew goes to the front, so it is next, however many wait. One whose line is
-- empty keeps its place until that is the first, so that it gains nothing by coming back: between two jobs of a tenant,
-- each other one with jobs waiting has one started.

local ALL_TENANTS = '*' -- no tenant is called so
local LEVELS = 4
local RESUMED = 0
local MOST_CANCELLED = 16 -- the most cancelled jobs that one call hands out to be ended
local LOOKED_MS = 3600000 -- for how long it is known when somebody last looked for leases that ran out
local MOST_READ = 500 -- the most tenants without jobs, and leases that ran out, which one call looks at
local MOST_TOLD = 8 -- the most tenants of a level of whose waiting jobs one call tells

local function level_key(name, level, tenant)
  return shard_key(name) .. ':' .. level .. (tenant and ':' .. tenant or '')
end

local function tell_workers(word)
  redis.call('SPUBLISH', shard_key('control'), word)
end

local function waiting()
  local sum = 0
  for level = 0, LEVELS - 1 do
    sum = sum + redis.call('ZCARD', level_key('queued', level))
  end
  return sum
end

-- What those that wait take up, of which a tenant has a share: it may have all while nobody else comes, and a part beyond the
-- limit is kept for tenants that have little.
local KEPT_PART = 8 -- what part of a limit is kept beyond it
local LITTLE_PART = 16 -- what part of a limit is little

-- The most that all may have together, of a limit, when one gets more who then has so much himself.
local function most_for(limit, own)
  if own <= math.max(1, math.floor(limit / LITTLE_PART)) then
    return limit + math.max(1, math.floor(limit / KEPT_PART))
  end
  return limit
end

local function waiting_of(tenant)
  local sum = 0
  for level = 0, LEVELS - 1 do
    sum = sum + redis.call('ZCARD', level_key('line', level, tenant))
  end
  return sum
end

-- Count bytes that a tenant's waiting jobs have in their logs: nothing may remove them, and they are not running either.
local function note_waiting(tenant, bytes)
  local sums = shard_key('waiting-bytes')
  for _, whose in ipairs({ tenant, ALL_TENANTS }) do
    if redis.call('HINCRBY', sums, whose, bytes) <= 0 then
      redis.call('HDEL', sums, whose)
    end
  end
end

-- The bytes of a tenant's waiting jobs, and of all. An older release starts jobs and counts nothing, so a tenant without any
-- counts anew.
local function waiting_bytes(tenant)
  local sums = shard_key('waiting-bytes')
  local own = tonumber(redis.call('HGET', sums, tenant) or 0)
  if own > 0 and waiting_of(tenant) == 0 then
    note_waiting(tenant, 0 - own)
    own = 0
  end
  return own, tonumber(redis.call('HGET', sums, ALL_TENANTS) or 0)
end

-- Give a job a place at a level. A tenant that comes anew is the next there, or the last where the job gave way.
local function enqueue(level, tenant, digits, sequence, gave_way)
  local turn = level_key('turn', level)
  if not redis.call('ZSCORE', turn, tenant) then
    local first, last = redis.call('ZRANGE', turn, 0, 0, 'WITHSCORES')[2], redis.call('ZRANGE', turn, -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', turn, gave_way and (last or -1) + 1 or (first or 1) - 1, tenant)
  end
  redis.call('ZADD', level_key('line', level, tenant), sequence, digits)
  redis.call('ZADD', level_key('queued', level), now_ms, tenant .. '/' .. digits)
  redis.call('HSET', key('job', tenant, digits), 'level', level, 'token', '')
  tell_workers('work')
end

-- Take a job out of its queue; since when it waited there, in ms.
local function dequeue(level, tenant, digits)
  local queued, member = level_key('queued', level), tenant .. '/' .. digits
  local since = redis.call('ZSCORE', queued, member)
  redis.call('ZREM', queued, member)
  redis.call('ZREM', level_key('line', level, tenant), digits)
  local job = key('job', tenant, digits)
  local bytes = redis.call('HGET', job, 'waiting_bytes')
  if bytes then
    redis.call('HDEL', job, 'waiting_bytes')
    note_waiting(tenant, 0 - bytes)
  end
  return since
end

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

-- Give the lease of a job to the holder of `token`, of whom was `heard` since, or not.
local function lease(tenant, digits, token, lease_ms, heard)
  local job = key('job', tenant, digits)
  redis.call('HSET', job, 'token', token, 'level', '', 'lease_ms', lease_ms, 'heard', heard)
  redis.call('ZADD', shard_key('leases'), now_ms + lease_ms, tenant .. '/' .. digits)
  return redis.call('HINCRBY', job, 'epoch', 1)
end

local function holds_lease(tenant, digits, token)
  return redis.call('HGET', key('job', tenant, digits), 'token') == token
end

-- A job was not worked on for so many ms: they don't count as time for which it ran.
local function rest(tenant, digits, span)
  local job = key('job', tenant, digits)
  local started = tonumber(redis.call('HGET', job, 'started') or nil)
  if started and span > 0 then
    redis.call('HSET', job, 'started', exact(math.min(started + span, now_ms)))
  end
end

-- Put a job back into the queue, before all that have not begun, or to its own level where it gives way. Nobody worked on it
-- behind the end of its lease.
local function put_back(tenant, digits, gives_way)
  local sequence, own = unpack(redis.call('HMGET', key('job', tenant, digits), 'sequence', 'own'))
  local ended = redis.call('ZSCORE', shard_key('leases'), tenant .. '/' .. digits)
  redis.call('ZREM', shard_key('leases'), tenant .. '/' .. digits)
  rest(tenant, digits, ended and now_ms - ended or 0)
  if sequence then
    enqueue(gives_way and own or RESUMED, tenant, digits, sequence, gives_way)
  end
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
