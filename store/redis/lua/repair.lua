--- include judging
--- include removal
--- include repairing
-- Repair some turns, as far as that costs nothing that anyone could read.
--
-- Arguments: members  the turns, parents before their children (judging.lua)
--            alone    1 where nobody has what these turns lack of themselves, 0 where others may
--            budget   the most turns that go with a tombstone that nothing needs, and the most leaves by which the
--                     last use of a tree is found
-- Result:    {'ok'}
-- Invariant: what is wrong is found again before it is repaired, so a retry changes nothing. A turn that a later release
--            wrote stays as it is. No repair deletes a turn. What a turn lacks of itself is only repaired where no archive has it.

local LONGEST_PIN_MS = 7 * 24 * 3600 * 1000 -- no run takes as long

local repairs = job_repairs

function repairs.mistyped(turn)
  redis.call('UNLINK', unpack(turn.mistyped))
end

repairs['no-node'] = clear

function repairs.stray(turn, listed)
  displace(turn.tenant, listed, turn.digits)
end

function repairs.lineage(turn)
  local wanted = derived(turn)
  displace(turn.tenant, turn.fields.root, turn.digits)
  redis.call('HSET', turn.node, 'root', wanted.root, 'depth', exact(wanted.depth),
    'chain_messages', exact(wanted.chain_messages), 'chain_bytes', exact(wanted.chain_bytes))
  if wanted.path then
    redis.call('HSET', turn.node, 'path', wanted.path)
  end
  turn.fields.root, turn.fields.depth = wanted.root, wanted.depth
end

function repairs.leaf(turn)
  local found = turn.fields
  local touched = found.touched or (not found.deleted and use(turn.leaf_score)) or use(redis.call('GET', clock))
    or now_us
  if (found.children or 0) > 0 or turn.under_way then
    unplace(turn)
    displace(turn.tenant, found.root, turn.digits)
  else
    replace(turn, found.deleted, touched)
    place(turn.tenant, found.root, turn.digits)
  end
  redis.call('HSET', turn.node, 'touched', exact(touched))
end

function repairs.list(turn)
  local found, list = turn.fields, list_of(turn.tenant)
  if not is('zset', list) and not is('none', list) then
    return -- the key goes in the next round
  end
  unlist(turn.tenant, turn.digits)
  if is_conversation(turn.digits) and not found.deleted then
    enlist(turn.tenant, turn.digits, exact(found.created or found.touched or now_us))
  end
end

-- A turn that may not be recognised has no words; any other is in the index again, or counted with the one that is there.
function repairs.said(turn)
  local said = turn.fields.said
  local index, name = entry_of(turn.tenant, said)
  if not is('hash', index) and not is('none', index) then
    return -- the key goes in the next round
  end
  local named = redis.call('HGET', index, name)
  if #said ~= WORDS_LENGTH or turn.fields.deleted then
    silence(turn)
  elseif named and has_words(turn.tenant, digits_of(named), name) then
    redis.call('HSET', index, name, '#2')
  else
    redis.call('HSET', index, name, bytes_of(turn.digits))
  end
end

-- It shows those that are there; settle.lua counts that.
repairs['no-picture'] = function(turn)
  local _, number, there = pictures_of(turn)
  count(turn.tenant, 'bytes', SHOWN_BYTES * (#there / 64 - number))
  if there == '' then
    redis.call('HDEL', turn.node, 'pictures')
  else
    redis.call('HSET', turn.node, 'pictures', there)
  end
end

-- A conversation began when the list says. Of any other turn only the last use is known.
function repairs.created(turn)
  local found = turn.fields
  found.created = use(turn.listed_score) or found.touched or now_us
  redis.call('HSET', turn.node, 'created', exact(found.created))
  repairs.list(turn)
end

repairs['kept-response'] = function(turn)
  local deleted = redis.call('HEXISTS', turn.node, 'deleted') == 1
  redis.call('UNLINK', key(deleted and 'response' or 'remains', turn.tenant, turn.digits))
end

function repairs.length(turn)
  local deleted = redis.call('HEXISTS', turn.node, 'deleted') == 1
  redis.call('HSET', turn.node, 'messages_bytes', turn.messages_bytes,
    'response_bytes', deleted and 0 or turn.response_bytes)
end

-- A tree is as recently used as the leaves that it names, or as many of them as a call may read.
local function last_use(turn)
  local newest = turn.fields.touched or 0
  local set = key('tree', turn.tenant, turn.digits)
  for _, digits in ipairs(redis.call('SRANDMEMBER', set, budget)) do
    newest = math.max(newest, use(score_in(leaves_of(turn.tenant), digits)) or 0)
  end
  return newest
end

function repairs.tree(turn)
  if turn.parent ~= '' then
    unorder(turn)
    redis.call('UNLINK', key('tree', turn.tenant, turn.digits))
  elseif turn.fields.abandoned then
    order(turn, '0')
  else
    order(turn, exact(last_use(turn)))
  end
end

function repairs.index(turn)
  local score = redis.call('ZSCORE', trees, turn.member)
  if score then
    order(turn, score)
  else
    unorder(turn)
  end
end

repairs['not-marked'] = function(turn)
  local root = key('node', turn.tenant, turn.fields.root)
  if redis.call('EXISTS', root) == 1 then
    redis.call('HSET', root, 'has_erased', 1)
  end
end

-- Pins count until their key goes at the latest; where that doesn't, until the last of them ends that a run can have.
repairs['endless-pin'] = function(turn)
  local pins, now = key('pins', turn.tenant, turn.digits), now_ms
  local left = redis.call('PTTL', pins)
  local last = now + (left == -1 and LONGEST_PIN_MS or left)
  for _, pin in ipairs(redis.call('ZRANGE', pins, '(' .. exact(last), '+inf', 'BYSCORE', 'LIMIT', 0, budget)) do
    redis.call('ZADD', pins, exact(last), pin)
  end
  if left == -1 then
    redis.call('PEXPIREAT', pins, exact(tonumber(unpinned_from(pins))))
  end
end

local function correct_held(turn)
  local noted, real = turn.fields.held, held_now(turn)
  if real ~= noted then
    redis.call('HSET', turn.node, 'held', real)
    count(turn.tenant, 'bytes', real - (noted or 0))
  end
end

repairs['not-queued'] = function(turn)
  queue(turn.tenant, turn.digits, redis.call('GET', shard_key('archive')))
end

local UNREADABLE = { damaged = true, ['no-parent'] = true, ['no-messages'] = true }

local function repair(turn, words, listed)
  for _, word in ipairs(words) do
    if UNREADABLE[word] then
      return -- for discard.lua
    end
  end
  for _, word in ipairs(words) do
    if repairs[word] and (alone == '1' or not LACKING[word]) then
      repairs[word](turn, listed)
    end
  end
  if turn.fields and words[1] ~= 'mistyped' then
    correct_held(turn)
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
