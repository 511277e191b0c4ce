--- include pins
-- Shared by the scripts that move jobs: into the queue, out of it, and from one holder to the next.
-- Invariant: a job waits at one level, or somebody holds its lease, never both and never neither. Its own fields are in
-- the head of submit.lua.
--
-- There is a queue for each level: 0 for jobs that had begun, then one for each priority. At a level each tenant has a
-- line, in the order in which its jobs came, and `turn` has the tenants in the order in which they take turns. Tenants take
-- turns at several levels together, as TURNS has them: a tenant has the same place at each, and when it is the next, the
-- first job at its first level starts. So the priority that a request asks for orders jobs of its own tenant alone. A tenant
-- whose job starts goes to the end; one that comes anew goes to the front, so it is next, however many wait. One whose lines
-- are empty keeps its place until that is the first, so that it gains nothing by coming back: between two jobs of a tenant,
-- each other one with jobs waiting at these levels has one started.
--
-- Level 1 is before all others: for tenants that the operator lets go first. The last levels are for jobs that have hours:
-- one of them starts when all others have. `accepted` has those that wait there, by the ms at which they were accepted; what
-- has waited there for long enough goes on to the ordinary level (claim.lua).

local ALL_TENANTS, WITH_HOURS = '*', '+' -- no tenant is called so
local LEVELS = 6
local RESUMED, ORDINARY = 0, 2
local WINDOWED = 4 -- the first level of jobs that have hours
local TURNS = { [0] = { 0, 2, 3 }, { 1 }, { 0, 2, 3 }, { 0, 2, 3 }, { 4, 5 }, { 4, 5 } } -- by level, those with turns together

local function level_key(name, level, tenant)
  return shard_key(name) .. ':' .. level .. (tenant and ':' .. tenant or '')
end

local function tell_workers(word)
  call('SPUBLISH', shard_key('control'), word)
end

-- Count bytes that waiting jobs have in their logs, for each of `...`: a tenant, ALL_TENANTS, WITH_HOURS. Nothing may remove
-- these bytes, and the jobs are not running either.
local function note_waiting(bytes, ...)
  local sums = shard_key('waiting-bytes')
  for _, whose in ipairs({ ... }) do
    if call('HINCRBY', sums, whose, bytes) <= 0 then
      call('HDEL', sums, whose)
    end
  end
end

-- The tenant that is the first of those that take turns at some levels, or with -1 the last, and its place; nil for none.
local function tenant_at(levels, index)
  local tenant, place
  for _, level in ipairs(levels) do
    local found = call('ZRANGE', level_key('turn', level), index, index, 'WITHSCORES')
    local at = tonumber(found[2])
    if at and (not place or (index == 0 and at < place) or (index ~= 0 and at > place)) then
      tenant, place = found[1], at
    end
  end
  return tenant, place
end

-- Give a job a place at a level. Its tenant takes turns there at the place that it has at the levels beside that. One that
-- comes anew is the next, or the last where the job gave way.
local function enqueue(level, tenant, digits, sequence, gave_way)
  local turn = level_key('turn', level)
  if not call('ZSCORE', turn, tenant) then
    local levels, place = TURNS[tonumber(level)], nil
    for _, each in ipairs(levels) do
      place = place or call('ZSCORE', level_key('turn', each), tenant)
    end
    if not place then
      local _, outermost = tenant_at(levels, gave_way and -1 or 0)
      place = gave_way and (outermost or -1) + 1 or (outermost or 1) - 1
    end
    call('ZADD', turn, place, tenant)
  end
  call('ZADD', level_key('line', level, tenant), sequence, digits)
  call('ZADD', level_key('queued', level), now_ms, tenant .. '/' .. digits)
  local job = key('job', tenant, digits)
  call('HSET', job, 'level', level, 'token', '')
  if tonumber(level) >= WINDOWED then
    call('ZADD', level_key('accepted', level), call('HGET', job, 'submitted'), tenant .. '/' .. digits)
    note_waiting(call('HGET', job, 'waiting_bytes') or 0, WITH_HOURS)
  end
  tell_workers('work')
end

-- Take a job's place at a level from it; since when it waited there, in ms.
local function leave_level(level, tenant, digits)
  local queued, member = level_key('queued', level), tenant .. '/' .. digits
  local since = call('ZSCORE', queued, member)
  call('ZREM', queued, member)
  call('ZREM', level_key('line', level, tenant), digits)
  if tonumber(level) >= WINDOWED then
    call('ZREM', level_key('accepted', level), member)
    note_waiting(0 - (call('HGET', key('job', tenant, digits), 'waiting_bytes') or 0), WITH_HOURS)
  end
  return since
end

-- Take a job out of its queue; since when it waited there, in ms.
local function dequeue(level, tenant, digits)
  local since = leave_level(level, tenant, digits)
  local job = key('job', tenant, digits)
  local bytes = call('HGET', job, 'waiting_bytes')
  if bytes then
    call('HDEL', job, 'waiting_bytes')
    note_waiting(0 - bytes, tenant, ALL_TENANTS)
  end
  return since
end

-- Give the lease of a job to the holder of `token`, of whom was `heard` since, or not.
local function lease(tenant, digits, token, lease_ms, heard)
  local job = key('job', tenant, digits)
  call('HSET', job, 'token', token, 'level', '', 'lease_ms', lease_ms, 'heard', heard)
  call('ZADD', shard_key('leases'), now_ms + lease_ms, tenant .. '/' .. digits)
  return call('HINCRBY', job, 'epoch', 1)
end

local function holds_lease(tenant, digits, token)
  return call('HGET', key('job', tenant, digits), 'token') == token
end

-- A job was not worked on for so many ms: they don't count as time for which it ran.
local function rest(tenant, digits, span)
  local job = key('job', tenant, digits)
  local started = tonumber(call('HGET', job, 'started') or nil)
  if started and span > 0 then
    call('HSET', job, 'started', exact(math.min(started + span, now_ms)))
  end
end

-- Put a job back into the queue, before all of its tenant that have not begun, or to its own level where it gives way, or
-- where nothing goes before that. Nobody worked on it behind the end of its lease.
local function put_back(tenant, digits, gives_way)
  local sequence, own = unpack(call('HMGET', key('job', tenant, digits), 'sequence', 'own'))
  local ended = call('ZSCORE', shard_key('leases'), tenant .. '/' .. digits)
  call('ZREM', shard_key('leases'), tenant .. '/' .. digits)
  rest(tenant, digits, ended and now_ms - ended or 0)
  if sequence then
    enqueue((gives_way or own == '1') and own or RESUMED, tenant, digits, sequence, gives_way)
  end
end
