--- include hearing
--- include queueing
-- Take the jobs that are next, to work on them: those whose lease ran out before all others of their tenants. Cancelled
-- ones whose lease ran out, which only have to be ended, are added.
--
-- Arguments: token       names whoever takes them, and this call among its retries
--            lease_ms    for how long they are his at least, once he was heard of
--            first_ms    for how long they are his until then
--            retry_ms    for how long a retry of this call is known
--            most        how many to take at most, not counting the cancelled ones
--            most_level  the last level from which to take them: of levels at which tenants take turns together, others
--                        that are the next go before one whose job waits there
--            spare_ms    for how many ms since it was accepted a job waits at each level of those that have hours, with spaces
--                        between; from then on it waits at the ordinary level, and has its priority
-- Result:    {'ok', the ms on this clock, how many leases had run out, how many there are now, the first level at which
--            jobs still wait or '', where none was asked for the tenants that are next (next_tenants) with commas between,
--            and for each job TENANT/DIGITS, its epoch, its status, the level of its priority, how many holders in a row got
--            no further with this one, the number of the last event in its log, and three spans in ms: since it was
--            submitted, for which it ran so far, and for which it waited this time; with spaces between} | {'late', the ms
--            on this clock}
-- Invariant: a job is taken by one. A retry returns what the first call took, as it is then. Who has given up takes nothing.
--            An entry of the queue that is of no job, which only somebody else can have put there, is removed.

local MOST_CANCELLED = 16 -- the most cancelled jobs that one call hands out to be ended
local LOOKED_MS = 3600000 -- for how long it is known when somebody last looked for leases that ran out
local MOST_READ = 500 -- the most tenants without jobs, and leases that ran out, which one call looks at
local MOST_PROMOTED = 100 -- the most jobs that one call gives the ordinary priority, of each level
local MOST_TOLD = 8 -- the most tenants of a level of whose waiting jobs one call tells

-- The job that starts next at some levels at which tenants take turns together, taken out of its queue: its tenant, its
-- digits and since when it waited there; nothing where none waits.
local function next_at(levels)
  for _ = 1, MOST_READ do
    local tenant = tenant_at(levels, 0)
    if not tenant then
      return nil
    end
    for _, level in ipairs(levels) do
      local digits = call('ZRANGE', level_key('line', level, tenant), 0, 0)[1]
      if digits then
        local _, last = tenant_at(levels, -1)
        for _, each in ipairs(levels) do
          call('ZADD', level_key('turn', each), 'XX', last + 1, tenant)
        end
        return tenant, digits, dequeue(level, tenant, digits)
      end
    end
    for _, level in ipairs(levels) do
      call('ZREM', level_key('turn', level), tenant)
    end
  end
end

-- Whether to look for a job at these levels: all are to be taken from, or jobs wait at one that is.
local function asks_for(levels)
  if levels[#levels] <= most_level then
    return true
  end
  for _, level in ipairs(levels) do
    if level <= most_level and call('ZCARD', level_key('queued', level)) > 0 then
      return true
    end
  end
  return false
end

-- Give the ordinary priority to jobs whose hours are nearly over. They wait anew, as for what they waited they had hours.
local function promote()
  local level = WINDOWED
  for ms in string.gmatch(spare_ms, '%S+') do
    local accepted = level_key('accepted', level)
    for _, member in ipairs(call('ZRANGE', accepted, '-inf', now_ms - ms, 'BYSCORE', 'LIMIT', 0, MOST_PROMOTED)) do
      local tenant, digits = split(member)
      local job, since = key('job', tenant, digits), leave_level(level, tenant, digits)
      local at, sequence = unpack(call('HMGET', job, 'level', 'sequence'))
      if tonumber(at) == level and since and sequence then
        rest(tenant, digits, now_ms - since)
        call('HSET', job, 'own', ORDINARY)
        enqueue(ORDINARY, tenant, digits, sequence)
      end
    end
    level = level + 1
  end
end

-- The tenants that are the next at each level, as far as jobs of theirs wait: TENANT, the level, how many, and for how many
-- ms the first has waited; with spaces between.
local function next_tenants()
  local found = {}
  for level = 0, LEVELS - 1 do
    for _, tenant in ipairs(call('ZRANGE', level_key('turn', level), 0, MOST_TOLD - 1)) do
      local line = level_key('line', level, tenant)
      local digits = call('ZRANGE', line, 0, 0)[1]
      local since = digits and call('ZSCORE', level_key('queued', level), tenant .. '/' .. digits)
      if since then
        found[#found + 1] =
          string.format('%s %d %d %s', tenant, level, call('ZCARD', line), exact(now_ms - since))
      end
    end
  end
  return found
end

-- Leases that ran out, and those that end later than a lease from now could, as the clock was stepped back since: a living
-- holder renews its lease, and a dead one must not keep the job until then. Others' leases may be longer than the caller's.
local function late_leases(lease_ms)
  local leases = shard_key('leases')
  local late = call('ZRANGE', leases, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, MOST_READ)
  local ahead =
    call('ZRANGE', leases, now_ms + 2 * lease_ms, '+inf', 'BYSCORE', 'LIMIT', 0, MOST_READ, 'WITHSCORES')
  for at = 1, #ahead, 2 do
    local own_ms = call('HGET', key('job', split(ahead[at])), 'lease_ms') or 0
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
  local ended, job = tonumber(call('ZSCORE', leases, member)), key('job', split(member))
  local heard, own_ms = unpack(call('HMGET', job, 'heard', 'lease_ms'))
  local grace = (own_ms or 0) / 2
  if grace == 0 or not looked or ended <= looked or ended > now_ms or now_ms - looked <= grace or (heard and heard ~= 'yes') then
    return false
  end
  call('HSET', job, 'heard', 'spared')
  call('ZADD', leases, now_ms + grace, member)
  return true
end

-- Put jobs whose lease ran out back into the queue, but not cancelled ones, which only have to be ended. How many there
-- are in all, and some of the cancelled ones.
local function rescue(lease_ms)
  local rescued, cancelled = 0, {}
  local looked = tonumber(call('SET', shard_key('looked'), exact(now_ms), 'PX', LOOKED_MS, 'GET') or nil)
  for _, member in ipairs(late_leases(lease_ms)) do
    local tenant, digits = split(member)
    if not spare(shard_key('leases'), member, looked) then
      rescued = rescued + 1
      if call('HGET', key('node', tenant, digits), 'status') ~= 'cancelled' then
        put_back(tenant, digits)
      elseif #cancelled < MOST_CANCELLED then
        cancelled[#cancelled + 1] = member
      end
    end
  end
  return rescued, cancelled
end

if now_ms > not_after then
  return { 'late', exact(now_ms) }
end

local function described(member, waited)
  local tenant, digits = split(member)
  local submitted, started, tries, progressed, heard, epoch, last, own = unpack(call('HMGET', key('job', tenant, digits),
    'submitted', 'started', 'tries', 'progressed', 'heard', 'epoch', 'last', 'own'))
  local status = call('HGET', key('node', tenant, digits), 'status')
  if heard == 'no' then
    tries = next_try(tries, progressed)
  end
  return string.format('%s %s %s %s %s %s %s %s %s', member, epoch, status, own, tries, last, exact(now_ms - submitted),
    exact(now_ms - started), waited)
end

local function is_job(tenant, digits)
  return call('HEXISTS', key('job', tenant, digits), 'submitted') == 1
    and call('HEXISTS', key('node', tenant, digits), 'status') == 1
end

local taken, note = {}, {}

local function hand_out(tenant, digits, since)
  local node, job = key('node', tenant, digits), key('job', tenant, digits)
  local member, waited = tenant .. '/' .. digits, now_ms - since
  lease(tenant, digits, token, lease_ms, 'no')
  call('ZADD', leases, now_ms + first_ms, member)
  local last, accepted = unpack(call('HMGET', job, 'last', 'accepted'))
  if last == accepted then -- whoever had it before has not begun
    call('HSET', job, 'started', exact(now_ms))
  else
    call('HSETNX', job, 'started', exact(now_ms))
    rest(tenant, digits, waited)
  end
  if call('HGET', node, 'status') == 'queued' then
    call('HSET', node, 'status', 'in_progress')
  end
  note[#note + 1] = member .. ' ' .. exact(waited)
  taken[#taken + 1] = described(member, exact(waited))
end

local asked = most

local function reply(rescued)
  local first, running = '', call('ZCARD', leases)
  for level = LEVELS - 1, 0, -1 do
    if call('ZCARD', level_key('queued', level)) > 0 then
      first = level
    end
  end
  local waiting = asked == 0 and table.concat(next_tenants(), ',') or ''
  return { 'ok', exact(now_ms), rescued, running, first, waiting, unpack(taken) }
end

local claimed = shard_key('claim:' .. token)
local before = call('GET', claimed)
if before then
  for member, waited in string.gmatch(before, '(%S+) (%S+)') do
    local tenant, digits = split(member)
    if holds_lease(tenant, digits, token) then
      taken[#taken + 1] = described(member, waited)
    end
  end
  return reply(0)
end
local rescued, cancelled = rescue(lease_ms)
promote()
for _, member in ipairs(cancelled) do
  local tenant, digits = split(member)
  if is_job(tenant, digits) then
    hand_out(tenant, digits, now_ms)
    most = most + 1
  end
end
for _, level in ipairs({ 1, ORDINARY, WINDOWED }) do
  local levels = TURNS[level]
  while #taken < most and asks_for(levels) do
    local tenant, digits, since = next_at(levels)
    if not tenant then
      break
    end
    if is_job(tenant, digits) then
      hand_out(tenant, digits, since)
    end
  end
end
if #note > 0 then
  call('SET', claimed, table.concat(note, ' '), 'PX', retry_ms)
end
return reply(rescued)
