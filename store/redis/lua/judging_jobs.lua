--- include entries
--- include facts
--- include queueing
-- Shared by the scripts that check and repair: what is wrong with a response in the background, its job, its places and its
-- events, by what is stored at one moment.
-- Invariant: nothing changes. The node says whether such a response is under way: until its end its digest is that of its
-- submission. The log says how far it is, and the job where it waits, or who holds it.

local RUNNING = { queued = true, in_progress = true }
local MODES = { plain = true, stream = true }
local MOST_ENTRIES = 200 -- of a longer log its memory is compared, as to read it would hold others up
local ROUGHLY = 4
local FARTHEST = 1e15 -- a place in the order of tenants that takes this many jobs
local DAY_MS = 86400000 -- how far ahead a time may be, as no lease is longer

-- A place as `each_member` names it: its key, and the turn's name in it.
local function place_of(tenant, digits, name)
  if string.match(name, '^line:') then
    return shard_key(name) .. ':' .. tenant, digits
  end
  return shard_key(name), tenant .. '/' .. digits
end

-- Whether a place names a turn that doesn't belong there.
local function is_strange(tenant, digits, name)
  local place, member = place_of(tenant, digits, name)
  if not score_in(place, member) then
    return false
  end
  local node, job = key('node', tenant, digits), key('job', tenant, digits)
  if name == 'logs' then
    return not is('hash', node) or redis.call('HEXISTS', node, 'log_bytes') == 0
  elseif not is('hash', job) then
    return true
  end
  local token, level = unpack(redis.call('HMGET', job, 'token', 'level'))
  if name == 'leases' then
    return not token or token == ''
  end
  return level ~= string.match(name, '%d$')
end

local function is_under_way(turn)
  local found = turn.fields
  return not found.deleted
    and ((found.submission and found.submission == found.digest) or (RUNNING[found.status] and turn.there.job))
end

-- The fields of a job as its scripts need them; nil where one is not.
local function job_of(turn)
  if not turn.there.job then
    return nil
  end
  local values, found = redis.call('HGETALL', turn.job), {}
  for at = 1, #values, 2 do
    found[values[at]] = values[at + 1]
  end
  for _, name in ipairs({ 'own', 'epoch', 'tries', 'progressed', 'submitted', 'last', 'log_bytes' }) do
    found[name] = integer(found[name])
    if not found[name] then
      return nil
    end
  end
  local level = found.level == '' or (integer(found.level) and found.level + 0 >= 0 and found.level + 0 < LEVELS)
  local noted = (not found.started or integer(found.started)) and (not found.snapshot_bytes or integer(found.snapshot_bytes))
  local own = found.own >= 1 and found.own < LEVELS
  return found.token and found.level and level and own and noted and integer(found.sequence) and found or nil
end

-- Whether a job waits at its level, or its holder's lease will end, and not both.
local function is_placed(turn, job)
  if job.token ~= '' then
    local ends = score_in(shard_key('leases'), turn.member)
    return job.level == '' and ends and ends < now_ms + DAY_MS
  end
  local level = job.level
  if level == '' then
    return false
  end
  local since = score_in(level_key('queued', level), turn.member)
  local order = score_in(level_key('turn', level), turn.tenant)
  return since and since < now_ms + DAY_MS and order and math.abs(order) < FARTHEST
    and score_in(level_key('line', level, turn.tenant), turn.digits) == integer(job.sequence)
end

local function is_snapshot(turn)
  return string.match(redis.call('GETRANGE', key('snapshot', turn.tenant, turn.digits), 0, 20), '^%d+ ')
end

-- The number of the last event in a log, and the bytes of its entries, as far as those are counted: nil of a long log,
-- unless it has to be.
local function measured(turn, exactly)
  local log = key('log', turn.tenant, turn.digits)
  local newest = turn.there.log and redis.call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  if not newest then
    return -1, 0
  end
  local last = string.match(newest[1], '^%d+') - 1
  if not exactly and redis.call('XLEN', log) > MOST_ENTRIES then
    return last, nil
  end
  local bytes, from = 0, '-'
  while from do
    local page = redis.call('XRANGE', log, from, '+', 'COUNT', MOST_ENTRIES)
    for _, entry in ipairs(page) do
      bytes = bytes + #entry[2][2] + ENTRY_BYTES
    end
    from = #page == MOST_ENTRIES and '(' .. page[#page][1]
  end
  return last, bytes
end

-- Whether so many bytes are what a log has, with so many of a snapshot.
local function is_size(turn, bytes, noted, snapshot)
  if bytes then
    return noted == bytes + snapshot
  end
  local held = redis.call('MEMORY', 'USAGE', key('log', turn.tenant, turn.digits), 'SAMPLES', 0) + snapshot
  return noted and noted > held / ROUGHLY and noted < held * ROUGHLY
end

-- Whether the events of an ended response are as its node says: there and due to be removed, or gone.
local function is_logged(turn)
  local noted, due = integer(turn.fields.log_bytes), score_in(shard_key('logs'), turn.member)
  if turn.there.snapshot or turn.there.log ~= (turn.fields.log_bytes and true or false) then
    return false
  elseif not turn.there.log then
    return not due
  end
  local _, bytes = measured(turn)
  return due and due < now_ms + DAY_MS and is_size(turn, bytes, noted, 0)
end

local function is_journaled(turn, job)
  local last, bytes = measured(turn)
  local snapshot = redis.call('STRLEN', key('snapshot', turn.tenant, turn.digits))
  return job.last == last and is_size(turn, bytes, job.log_bytes, snapshot)
    and snapshot == (integer(job.snapshot_bytes) or 0) and (snapshot == 0 or is_snapshot(turn))
end

-- Whether a node is right about a response under way.
local function stands(turn, job)
  local found = turn.fields
  local status = found.status
  return found.submission == found.digest and found.continuable == '0' and MODES[found.background]
    and (status == 'cancelled' or (RUNNING[status] and (not job or (status == 'queued') == not job.started)))
end

local function judge_work(turn, words)
  local found = turn.fields
  local function note(word, wrong)
    words[#words + 1] = wrong and word or nil
  end
  if not turn.under_way then
    note('standing', not found.deleted and (RUNNING[found.status] or (found.fleeting and found.continuable ~= '0')))
    note('stray-job', turn.there.job or turn.there.spec)
    note('events', not is_logged(turn))
    return
  end
  local job = job_of(turn)
  note('no-work', redis.call('STRLEN', key('spec', turn.tenant, turn.digits)) == 0)
  note('standing', not stands(turn, job))
  note('no-job', not job)
  if job then
    note('no-place', not is_placed(turn, job))
    note('events', not is_journaled(turn, job))
  end
end

-- A turn's share of the sums of jobs and events: how many jobs it notes of its tree, -1 for no number; the root of the
-- tree in which it is one; and the bytes of its events.
local function job_sums(turn)
  local found = turn.fields
  local noted = found.jobs and (integer(found.jobs) or -1) or 0
  local bytes = turn.under_way and (turn.there.job and redis.call('HGET', turn.job, 'log_bytes')) or found.log_bytes
  return found.jobs and noted < 1 and -1 or noted, turn.under_way and found.root or '-', integer(bytes) or 0
end
