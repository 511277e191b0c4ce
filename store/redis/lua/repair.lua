--- include judging
--- include removal
--- include repairing
-- Make again what follows from what is stored of some turns: their lineage, their places, and what is noted of them.
--
-- Arguments: members  the turns, parents before their children (judging.lua)
--            alone    1 where nobody has what these turns lack of themselves, 0 where others may
--            budget   the most turns that go with a tombstone that nothing needs, and the most leaves by which the
--                     last use of a tree is found
-- Result:    {'ok'}
-- Invariant: what is wrong is found again before it is repaired, so a retry changes nothing. A turn that a later release
--            wrote stays as it is. No repair deletes a turn, and none makes up what a turn lacks of itself, but when it was
--            made: discard.lua is for that. What is under way stays so, with all that its log has, while anybody can end it.

local repairs = { ['no-node'] = clear }

function repairs.mistyped(turn)
  call('UNLINK', unpack(turn.mistyped))
end

function repairs.stray(turn, listed)
  call('SREM', key('tree', turn.tenant, listed), turn.digits)
end

repairs['stray-place'] = function(turn, name)
  local digits = string.match(turn.digits, '^%x+')
  local index, field = said_in(turn.tenant, name)
  if index then
    call('HDEL', index, field)
  else
    call('ZREM', place_of(turn.tenant, digits, name))
  end
end

repairs['not-queued'] = function(turn)
  queue(turn.tenant, turn.digits)
end

function repairs.lineage(turn)
  local wanted = derived(turn)
  call('SREM', key('tree', turn.tenant, turn.fields.root or ''), turn.digits)
  call('HSET', turn.node, 'root', wanted.root, 'depth', exact(wanted.depth),
    'chain_messages', exact(wanted.chain_messages), 'chain_bytes', exact(wanted.chain_bytes))
  if wanted.path then
    call('HSET', turn.node, 'path', wanted.path)
  end
  turn.fields.root, turn.fields.depth = wanted.root, wanted.depth
end

function repairs.leaf(turn)
  local found = turn.fields
  local touched = exact(found.touched or (not found.deleted and use(turn.leaf_score)) or use(call('GET', clock)) or now_us)
  unplace(turn)
  call('HSET', turn.node, 'touched', touched)
  if (found.children or 0) > 0 or turn.under_way then
    return
  elseif found.deleted then
    place_tombstone(turn.tenant, turn.digits, unpinned_from(key('pins', turn.tenant, turn.digits)))
  else
    place_leaf(turn.tenant, turn.digits, touched)
  end
  call('SADD', key('tree', turn.tenant, found.root), turn.digits)
end

-- A tree is as recently used as the leaves that it names, or as many of them as a call may read.
function repairs.tree(turn)
  local set, newest = key('tree', turn.tenant, turn.digits), turn.fields.touched or 0
  if turn.parent ~= '' then
    displace_tree(turn.tenant, turn.digits)
    call('UNLINK', set)
    return
  end
  for _, digits in ipairs(call('SRANDMEMBER', set, budget)) do
    newest = math.max(newest, use(score_in(leaves_of(turn.tenant), digits)) or 0)
  end
  place_tree(turn.tenant, turn.digits, turn.fields.abandoned and '0' or exact(newest))
end

function repairs.index(turn)
  local score = call('ZSCORE', trees, turn.member)
  if score then
    place_tree(turn.tenant, turn.digits, score)
  else
    displace_tree(turn.tenant, turn.digits)
  end
end

-- A conversation began when the list says. Of any other turn only the last use is known.
function repairs.created(turn)
  local found = turn.fields
  found.created = found.created or use(turn.listed_score) or found.touched or now_us
  call('HSET', turn.node, 'created', exact(found.created))
  unlist(turn.tenant, turn.digits)
  if is_conversation(turn.digits) and not found.deleted then
    enlist(turn.tenant, turn.digits, exact(found.created))
  end
end

function repairs.list(turn)
  if turn.fields.created then
    repairs.created(turn)
  end
end

-- A turn that may not be recognised has no words; any other is in the index again, or counted with the one that is there.
function repairs.said(turn)
  local said = turn.fields.said
  local index, name = entry_of(turn.tenant, said)
  local named = call('HGET', index, name)
  if #said ~= WORDS_LENGTH or turn.fields.deleted then
    unsay(turn.tenant, turn.digits, said)
    call('HDEL', turn.node, 'said')
    turn.fields.said = nil
  elseif named and has_words(turn.tenant, named, name) then
    call('HSET', index, name, '#2')
  else
    call('HSET', index, name, turn.digits)
  end
end

repairs['kept-response'] = function(turn)
  call('UNLINK', key(turn.fields.deleted and 'response' or 'remains', turn.tenant, turn.digits))
end

repairs['not-marked'] = function(turn)
  call('HSET', key('node', turn.tenant, turn.fields.root), 'has_erased', 1)
end

repairs['endless-pin'] = function(turn)
  call('UNLINK', key('pins', turn.tenant, turn.digits))
end

repairs['stray-job'] = function(turn)
  displace_job(turn)
  call('UNLINK', turn.job, key('spec', turn.tenant, turn.digits))
end

-- Give what is under way a job again, by what is left of that and by its log. It waits before all that has not begun; who
-- worked on it has lost it. Without a spec that can be read the next one ends it as failed.
local function resume(turn)
  local found, job, order = turn.fields, turn.job, level_key('turn', RESUMED)
  local snapshot, spec = key('snapshot', turn.tenant, turn.digits), key('spec', turn.tenant, turn.digits)
  local function number(name, otherwise)
    return exact(integer(call('HGET', job, name)) or otherwise)
  end
  if call('STRLEN', spec) == 0 then
    call('SET', spec, '\0')
  end
  if not is_snapshot(turn) then
    call('UNLINK', snapshot)
  end
  local own = tonumber(number('own', 0))
  local started = integer(call('HGET', job, 'started')) or (found.status ~= 'queued' and now_ms)
  if started then
    call('HSET', job, 'started', exact(started))
  else
    call('HDEL', job, 'started')
  end
  local last, bytes = measured(turn, true)
  local taken = call('STRLEN', snapshot)
  call('HSET', job, 'own', own >= 1 and own < LEVELS and own or ORDINARY, 'epoch', number('epoch', 1), 'tries',
    number('tries', 0), 'progressed', number('progressed', 0), 'sequence', number('sequence', now_us), 'submitted',
    number('submitted', now_ms), 'last', exact(last), 'log_bytes', exact(bytes + taken), 'snapshot_bytes', taken)
  call('HSET', turn.node, 'continuable', 0, 'submission', found.digest, 'background',
    MODES[found.background] and found.background or 'stream', 'status',
    found.status == 'cancelled' and found.status or started and 'in_progress' or 'queued')
  displace_job(turn)
  call('ZREMRANGEBYSCORE', order, FARTHEST, '+inf')
  call('ZREMRANGEBYSCORE', order, '-inf', -FARTHEST)
  enqueue(RESUMED, turn.tenant, turn.digits, call('HGET', job, 'sequence'))
end

repairs['no-work'], repairs['no-job'], repairs['no-place'] = resume, resume, resume

function repairs.events(turn)
  local _, bytes = measured(turn, true)
  if turn.under_way then
    resume(turn)
  elseif not turn.fields.log_bytes or bytes == 0 or turn.fields.deleted then
    call('HDEL', turn.node, 'log_bytes')
    drop_log(turn.tenant, turn.digits, integer(turn.fields.log_bytes) or 0)
  else
    call('UNLINK', key('snapshot', turn.tenant, turn.digits))
    call('HSET', turn.node, 'log_bytes', exact(bytes))
    call('ZADD', shard_key('logs'), now_ms, turn.member)
  end
end

function repairs.standing(turn)
  local found = turn.fields
  if turn.under_way then
    return resume(turn)
  end
  call('HSET', turn.node, 'continuable', found.fleeting and 0 or found.continuable)
  if RUNNING[found.status] then
    call('HSET', turn.node, 'status', found.continuable == '1' and 'incomplete' or 'failed')
  end
end

local function repair(turn, words, listed)
  local wrong = {}
  for _, word in ipairs(words) do
    wrong[word] = true
  end
  if wrong.damaged or wrong['no-parent'] or wrong['no-messages'] then
    return -- for discard.lua
  end
  for _, word in ipairs(words) do
    if repairs[word] and (wrong.mistyped or (has_places(turn) and (alone == '1' or not LACKING[word]))) then
      repairs[word](turn, listed)
    end
  end
  if turn.fields and not wrong.mistyped then
    local noted, real = turn.fields.held, held_now(turn)
    if real ~= noted then
      note_held(turn.tenant, turn.digits, noted or 0, real)
    end
  end
end

for tenant, digits, listed in each_member(members) do
  local turn, words = judge(tenant, digits, listed, version)
  if words[1] == 'unneeded' then
    take(tenant, digits, budget)
  elseif #words > 0 and not turn.newer then
    repair(turn, words, listed)
  end
end
record()
return { 'ok' }
