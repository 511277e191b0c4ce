--- include facts
--- include judging
--- include pins
--- include places
-- Shared by the scripts that repair: the place of a turn among the leaves of a tree, and in the order of eviction; that of a
-- tree in the order of trees; and jobs, their places and their events.
-- Invariant: a key of another type stays as it is; what is amiss then is found in the next round. What is under way stays so,
-- with all that its log has, while anybody can end it.

local function place(tenant, root, digits)
  local set = key('tree', tenant, root)
  if is('set', set) or is('none', set) then
    redis.call('SADD', set, digits)
  end
end

local function displace(tenant, root, digits)
  local set = key('tree', tenant, root or '')
  if is('set', set) then
    redis.call('SREM', set, digits)
  end
end

local function unplace(turn)
  for _, deleted in ipairs({ true, false }) do
    if deleted or is('zset', leaves_of(turn.tenant)) then
      displace_leaf(turn.tenant, turn.digits, deleted)
    end
  end
end

-- Give a turn without children the place that it has by its last use, and no other.
local function replace(turn, deleted, touched)
  unplace(turn)
  if deleted then
    place_tombstone(turn.tenant, turn.digits, unpinned_from(key('pins', turn.tenant, turn.digits)))
  elseif is('zset', leaves_of(turn.tenant)) or is('none', leaves_of(turn.tenant)) then
    place_leaf(turn.tenant, turn.digits, exact(touched))
  end
end

local function has_an_order(tenant)
  return is('zset', trees_of(tenant)) or is('none', trees_of(tenant))
end

local function order(turn, score)
  if has_an_order(turn.tenant) then
    place_tree(turn.tenant, turn.digits, score)
  end
end

local function unorder(turn)
  if has_an_order(turn.tenant) then
    displace_tree(turn.tenant, turn.digits)
  end
end

-- Take the words of a turn away, and what the index says of it.
local function silence(turn)
  if is('hash', (entry_of(turn.tenant, ''))) then
    unsay(turn.tenant, turn.digits, turn.fields.said)
  end
  redis.call('HDEL', turn.node, 'said')
  turn.fields.said = nil
end

-- Remove all keys of a turn, and all its places but those of a job.
local function clear(turn)
  if turn.fields and turn.fields.said then
    silence(turn)
  end
  if turn.fields then
    count(turn.tenant, 'bytes', -SHOWN_BYTES * select(2, pictures_of(turn))) -- settle.lua counts those that show a picture
  end
  for _, family in ipairs(KINDS) do
    redis.call('UNLINK', key(family[1], turn.tenant, turn.digits))
  end
  unplace(turn)
  if turn.listed_score then
    unlist(turn.tenant, turn.digits)
  end
  unorder(turn)
end

-- The repair for each word of judging.lua, for repair.lua.
local job_repairs = {}

local function leave_place(place, member)
  if is('zset', place) then
    redis.call('ZREM', place, member)
  end
end

local function displace_job(turn)
  for level = 0, LEVELS - 1 do
    leave_place(level_key('queued', level), turn.member)
    leave_place(level_key('accepted', level), turn.member)
    leave_place(level_key('line', level, turn.tenant), turn.digits)
  end
  leave_place(shard_key('leases'), turn.member)
end

local function one_job_less(turn)
  local root = key('node', turn.tenant, turn.fields.root or '')
  local noted = is('hash', root) and integer(redis.call('HGET', root, 'jobs'))
  if noted and noted > 1 then
    redis.call('HSET', root, 'jobs', exact(noted - 1))
  elseif noted then
    redis.call('HDEL', root, 'jobs')
  end
end

local function noted_bytes(turn)
  return integer(turn.there.job and redis.call('HGET', turn.job, 'log_bytes') or turn.fields.log_bytes) or 0
end

local function drop_job(turn)
  displace_job(turn)
  redis.call('UNLINK', turn.job, key('spec', turn.tenant, turn.digits))
end

-- No worker can read this spec, so the next holder of the job ends it as failed.
job_repairs['no-work'] = function(turn)
  redis.call('SET', key('spec', turn.tenant, turn.digits), '\0')
end

job_repairs['stray-job'] = drop_job

job_repairs['stray-place'] = function(turn, name)
  local tenant, digits = turn.tenant, string.match(turn.digits, '^%x+')
  local index, field = said_in(tenant, name)
  if index then
    redis.call('HDEL', index, field)
    return
  end
  leave_place(place_of(tenant, digits, name))
end

-- It waits again, before all that has not begun; its former holder has lost it.
job_repairs['no-place'] = function(turn)
  displace_job(turn)
  local order, line = level_key('turn', RESUMED), level_key('line', RESUMED, turn.tenant)
  redis.call('ZREMRANGEBYSCORE', order, FARTHEST, '+inf')
  redis.call('ZREMRANGEBYSCORE', order, '-inf', -FARTHEST)
  if not is('zset', line) then
    redis.call('UNLINK', line)
  end
  enqueue(RESUMED, turn.tenant, turn.digits, redis.call('HGET', turn.job, 'sequence'))
end

local function note_job_events(turn)
  local snapshot = key('snapshot', turn.tenant, turn.digits)
  if not is_snapshot(turn) then
    redis.call('UNLINK', snapshot)
  end
  local last, bytes = measured(turn, true)
  local taken = redis.call('STRLEN', snapshot)
  redis.call('HSET', turn.job, 'last', exact(last), 'log_bytes', exact(bytes + taken), 'snapshot_bytes', taken)
end

-- Recreate a job from what is left of it, and from its node and its log.
job_repairs['no-job'] = function(turn)
  local function number(name, otherwise)
    return exact(integer(redis.call('HGET', turn.job, name)) or otherwise)
  end
  local own = tonumber(number('own', 0))
  redis.call('HSET', turn.job, 'own', own >= 1 and own < LEVELS and own or 2, 'epoch', number('epoch', 1), 'tries',
    number('tries', 0), 'progressed', number('progressed', 0), 'sequence', number('sequence', now_us),
    'submitted', number('submitted', now_ms))
  if turn.fields.status == 'queued' then
    redis.call('HDEL', turn.job, 'started')
  else
    redis.call('HSET', turn.job, 'started', number('started', now_ms))
  end
  note_job_events(turn)
  job_repairs['no-place'](turn)
end

function job_repairs.events(turn)
  local digits, tenant = turn.digits, turn.tenant
  if turn.under_way then
    return note_job_events(turn)
  end
  local _, bytes = measured(turn, true)
  if not turn.fields.log_bytes or bytes == 0 or turn.fields.deleted then
    redis.call('HDEL', turn.node, 'log_bytes')
    return drop_log(tenant, digits, integer(turn.fields.log_bytes) or 0)
  end
  redis.call('UNLINK', key('snapshot', tenant, digits))
  redis.call('HSET', turn.node, 'log_bytes', exact(bytes))
  redis.call('ZADD', shard_key('logs'), now_ms, turn.member)
end

function job_repairs.standing(turn)
  local found, node = turn.fields, turn.node
  if not turn.under_way then
    redis.call('HSET', node, 'continuable', found.fleeting and 0 or found.continuable)
    if RUNNING[found.status] then
      found.status = found.continuable == '1' and 'incomplete' or 'failed'
      redis.call('HSET', node, 'status', found.status)
    end
    return
  end
  local started = turn.there.job and redis.call('HGET', turn.job, 'started')
  if found.status == 'in_progress' and turn.there.job and not started then
    redis.call('HSET', turn.job, 'started', exact(now_ms))
  elseif found.status ~= 'cancelled' then
    found.status = started and 'in_progress' or found.status == 'in_progress' and 'in_progress' or 'queued'
  end
  redis.call('HSET', node, 'status', found.status, 'continuable', 0, 'submission', found.digest, 'background',
    MODES[found.background] and found.background or 'stream')
end
