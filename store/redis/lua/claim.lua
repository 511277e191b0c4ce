--- include claiming
--- include hearing
-- Take the jobs that are next, to work on them: those whose lease ran out before all others. Cancelled ones whose lease
-- ran out, which only have to be ended, are added.
--
-- Keys:      leases
-- Arguments: token       names whoever takes them, and this call among its retries
--            not_after   the ms after which the caller has given up
--            lease_ms    for how long they are his at least, once he was heard of
--            first_ms    for how long they are his until then
--            retry_ms    for how long a retry of this call is known
--            most        how many to take at most, not counting the cancelled ones
--            most_level  the last level from which to take them
-- Result:    {'ok', the ms on this clock, how many leases had run out, how many there are now, the first level at which
--            jobs still wait or '', where none was asked for the tenants that are next (next_tenants) with commas between,
--            and for each job TENANT/DIGITS, its epoch, its status, the level of its priority, how many holders in a row got
--            no further with this one, the number of the last event in its log, and three spans in ms: since it was
--            submitted, for which it ran so far, and for which it waited this time; with spaces between} | {'late', the ms
--            on this clock}
-- Invariant: a job is taken by one. A retry returns what the first call took, as it is then. Who has given up takes nothing.
--            An entry of the queue that is of no job, which only somebody else can have put there, is removed.

if now_ms > not_after then
  return { 'late', exact(now_ms) }
end

local function described(member, waited)
  local tenant, digits = split(member)
  local submitted, started, tries, progressed, heard, epoch, last, own = unpack(redis.call('HMGET', key('job', tenant, digits),
    'submitted', 'started', 'tries', 'progressed', 'heard', 'epoch', 'last', 'own'))
  local status = redis.call('HGET', key('node', tenant, digits), 'status')
  if heard == 'no' then
    tries = next_try(tries, progressed)
  end
  return string.format('%s %s %s %s %s %s %s %s %s', member, epoch, status, own, tries, last, exact(now_ms - submitted),
    exact(now_ms - started), waited)
end

local function is_job(tenant, digits)
  local job, node = key('job', tenant, digits), key('node', tenant, digits)
  return redis.call('HEXISTS', job, 'submitted') == 1 and redis.call('HEXISTS', node, 'status') == 1
end

local function take_job(tenant, digits, waited)
  local node, job = key('node', tenant, digits), key('job', tenant, digits)
  lease(tenant, digits, token, lease_ms, 'no')
  redis.call('ZADD', leases, now_ms + first_ms, tenant .. '/' .. digits)
  local last, accepted = unpack(redis.call('HMGET', job, 'last', 'accepted'))
  if last == accepted then -- whoever had it before has not begun
    redis.call('HSET', job, 'started', exact(now_ms))
  else
    redis.call('HSETNX', job, 'started', exact(now_ms))
    rest(tenant, digits, waited)
  end
  if redis.call('HGET', node, 'status') == 'queued' then
    redis.call('HSET', node, 'status', 'in_progress')
  end
end

local taken, note = {}, {}

local function hand_out(tenant, digits, since)
  local member, waited = tenant .. '/' .. digits, now_ms - since
  take_job(tenant, digits, waited)
  note[#note + 1] = member .. ' ' .. exact(waited)
  taken[#taken + 1] = described(member, exact(waited))
end

local asked = most

local function reply(rescued)
  local first, running = '', redis.call('ZCARD', leases)
  for level = LEVELS - 1, 0, -1 do
    if redis.call('ZCARD', level_key('queued', level)) > 0 then
      first = level
    end
  end
  local waiting = asked == 0 and table.concat(next_tenants(), ',') or ''
  return { 'ok', exact(now_ms), rescued, running, first, waiting, unpack(taken) }
end

local claimed = shard_key('claim:' .. token)
local before = redis.call('GET', claimed)
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
for _, member in ipairs(cancelled) do
  local tenant, digits = split(member)
  if is_job(tenant, digits) then
    hand_out(tenant, digits, now_ms)
    most = most + 1
  end
end
for level = 0, most_level do
  while #taken < most do
    local tenant, digits, since = next_at(level)
    if not tenant then
      break
    end
    if is_job(tenant, digits) then
      hand_out(tenant, digits, since)
    end
  end
end
if #note > 0 then
  redis.call('SET', claimed, table.concat(note, ' '), 'PX', retry_ms)
end
return reply(rescued)
