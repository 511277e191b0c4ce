--- include pins
-- Shared by the scripts that move jobs: into the queue, out of it, and from one holder to the next.
-- Invariant: a job waits at one level, or somebody holds its lease, never both and never neither. Its own fields are in
-- the head of submit.lua.
--
-- There is a queue for each level: 0 for jobs that had begun, then one for each priority. At a level each tenant has a
-- line, in the order in which its jobs came, and `turn` has the tenants in the order in which they take turns. One whose
-- job starts goes to the end; one that comes anew goes to the front, so it is next, however many wait. One whose line is
-- empty keeps its place until that is the first, so that it gains nothing by coming back: between two jobs of a tenant,
-- each other one with jobs waiting has one started.
--
-- The last levels are for jobs that have hours: one of them starts when all others have. `accepted` has those that wait there,
-- by the ms at which they were accepted; what has waited there for long enough goes on to the ordinary level (claim.lua).

local ALL_TENANTS = '*' -- no tenant is called so
local LEVELS = 6
local RESUMED, ORDINARY = 0, 2
local WINDOWED = 4 -- the first level of jobs that have hours

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

-- The room of waiting jobs, of which a tenant has a share: it may have all while nobody else comes, and a part beyond the
-- limit is kept for tenants that have little.

-- The most that all may have together, of a limit, when one gets more that then has so much itself.
local function most_for(limit, own)
  local KEPT_PART, LITTLE_PART = 8, 16 -- what part of a limit is kept beyond it, and what part of it is little
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

-- The bytes of a tenant's waiting jobs, and of all. A tenant without waiting jobs counts anew.
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
  local job = key('job', tenant, digits)
  redis.call('HSET', job, 'level', level, 'token', '')
  if tonumber(level) >= WINDOWED then
    redis.call('ZADD', level_key('accepted', level), redis.call('HGET', job, 'submitted'), tenant .. '/' .. digits)
  end
  tell_workers('work')
end

-- Take a job's place at a level from it; since when it waited there, in ms.
local function leave_level(level, tenant, digits)
  local queued, member = level_key('queued', level), tenant .. '/' .. digits
  local since = redis.call('ZSCORE', queued, member)
  redis.call('ZREM', queued, member)
  redis.call('ZREM', level_key('accepted', level), member)
  redis.call('ZREM', level_key('line', level, tenant), digits)
  return since
end

-- Take a job out of its queue; since when it waited there, in ms.
local function dequeue(level, tenant, digits)
  local since = leave_level(level, tenant, digits)
  local job = key('job', tenant, digits)
  local bytes = redis.call('HGET', job, 'waiting_bytes')
  if bytes then
    redis.call('HDEL', job, 'waiting_bytes')
    note_waiting(tenant, 0 - bytes)
  end
  return since
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
