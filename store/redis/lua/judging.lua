--- include facts
--- include held
--- include logs
--- include noting
--- include pictures
--- include queueing
--- include said
-- Shared by the scripts that check and repair: what is wrong with one turn, by what is stored at one moment.
-- Arguments: version  the newest format version that is known
-- Invariant: nothing changes. Every change of the store is one script, so each of these faults is one at any moment.
-- Only one word is no fault: 'unneeded', a tombstone that the next sweep removes.
--
-- A turn's parent link is the truth. What a node repeats of those above it (root, depth, chain_messages, chain_bytes,
-- path) has to follow from that link. store/fsck/faults.py says what each word means.
--
-- The node says whether a response in the background is under way: until its end its digest is that of its submission. The log
-- says how far it is, and the job where it waits, or who holds it.

-- A turn lacks something of itself that others may have: who continues it can read all else.
local LACKING = { ['no-response'] = true, ['no-picture'] = true, length = true, created = true }
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

-- The key and the field of the index of words that a place `said:FIELD` means, nil of any other place.
local function said_in(tenant, name)
  local field = string.match(name, '^said:(%x*)$')
  return field and entry_of(tenant, ''), field and string.gsub(field, '%x%x', function(two)
    return string.char(tonumber(two, 16))
  end)
end

-- Whether a turn has the words that the index says.
local function has_words(tenant, digits, field)
  local node = key('node', tenant, digits)
  return is('hash', node) and select(2, entry_of(tenant, call('HGET', node, 'said') or '')) == field
end

-- Whether a place names a turn that doesn't belong there.
local function is_strange(tenant, digits, name)
  local index, field = said_in(tenant, name)
  if index then
    local named = is('hash', index) and call('HGET', index, field)
    return named and (not count_of(named) or #field ~= WORDS_NAME) and not has_words(tenant, named, field)
  end
  local place, member = place_of(tenant, digits, name)
  if not score_in(place, member) then
    return false
  end
  local node, job = key('node', tenant, digits), key('job', tenant, digits)
  if name == 'logs' then
    return not is('hash', node) or call('HEXISTS', node, 'log_bytes') == 0
  elseif not is('hash', job) then
    return true
  end
  local token, level = unpack(call('HMGET', job, 'token', 'level'))
  if name == 'leases' then
    return not token or token == ''
  end
  return level ~= string.match(name, '%d$')
end

-- Whether a tree has changes that the archive lacks, and nobody would archive them.
local function is_unqueued(tenant, root)
  local waiting = shard_key('unarchived')
  return call('EXISTS', changes_of(tenant, root)) == 1 and (is('zset', waiting) or is('none', waiting))
    and not call('ZSCORE', waiting, tenant .. '/' .. root)
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
  local values, found = call('HGETALL', turn.job), {}
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
  if level + 0 >= WINDOWED and score_in(level_key('accepted', level), turn.member) ~= job.submitted then
    return false
  end
  return since and since < now_ms + DAY_MS and order and math.abs(order) < FARTHEST
    and score_in(level_key('line', level, turn.tenant), turn.digits) == integer(job.sequence)
end

local function is_snapshot(turn)
  return string.match(call('GETRANGE', key('snapshot', turn.tenant, turn.digits), 0, 20), '^%d+ ')
end

-- The number of the last event in a log, and the bytes of its entries, as far as those are counted: nil of a long log,
-- unless it has to be.
local function measured(turn, exactly)
  local log = key('log', turn.tenant, turn.digits)
  local newest = turn.there.log and call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
  if not newest then
    return -1, 0
  end
  local last = string.match(newest[1], '^%d+') - 1
  if not exactly and call('XLEN', log) > MOST_ENTRIES then
    return last, nil
  end
  local bytes, from = 0, '-'
  while from do
    local page = call('XRANGE', log, from, '+', 'COUNT', MOST_ENTRIES)
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
  local held = call('MEMORY', 'USAGE', key('log', turn.tenant, turn.digits), 'SAMPLES', 0) + snapshot
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
  local snapshot = call('STRLEN', key('snapshot', turn.tenant, turn.digits))
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
  note('no-work', call('STRLEN', key('spec', turn.tenant, turn.digits)) == 0)
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
  local bytes = turn.under_way and (turn.there.job and call('HGET', turn.job, 'log_bytes')) or found.log_bytes
  return found.jobs and noted < 1 and -1 or noted, turn.under_way and found.root or '-', integer(bytes) or 0
end

local HEAD_BYTES = 6
local PIN_SLACK_MS = 1000

-- How many messages a blob has, whose first bytes are a format version and the head of a msgpack array; nil of any other.
local function messages_in(head)
  local from, mark, high, low, higher, highest = string.byte(head, 1, HEAD_BYTES)
  if from == 0 or not mark then
    return nil
  elseif mark >= 0x90 and mark <= 0x9f then
    return mark - 0x90
  elseif mark == 0xdc and low then
    return high * 256 + low
  elseif mark == 0xdd and highest then
    return ((high * 256 + low) * 256 + higher) * 256 + highest
  end
end

-- The fields that the node has to contain, given its parent; nil when that is gone.
local function derived(turn)
  local found, own = turn.fields, { bytes = turn.messages_bytes, messages = turn.messages }
  local root, depth, chain_messages, chain_bytes, path = turn.digits, 1, 0, 0, false
  if turn.parent ~= '' then
    local node = key('node', turn.tenant, turn.parent)
    if not is('hash', node) then
      return nil
    end
    local above = call('HMGET', node, 'root', 'depth', 'chain_messages', 'chain_bytes')
    if not (above[1] and integer(above[2]) and integer(above[3]) and integer(above[4])) then
      return nil
    end
    root, depth, chain_messages, chain_bytes = above[1], above[2] + 1, integer(above[3]), integer(above[4])
    if has_path(depth) then
      local unbroken, above_it = pcall(path_from, turn.tenant, turn.parent)
      path = unbroken and above_it or found.path -- a hole in it is the fault of another turn
    end
  end
  if found.erased then -- what it had added still counts
    own.bytes = math.max(0, (found.chain_bytes or 0) - chain_bytes)
    own.messages = math.max(0, (found.chain_messages or 0) - chain_messages)
  end
  return { root = root, depth = depth, path = path, chain_messages = chain_messages + (own.messages or 0),
    chain_bytes = chain_bytes + own.bytes }
end

local function follows(found, wanted)
  return found.root == wanted.root and found.depth == wanted.depth
    and found.chain_messages == wanted.chain_messages and found.chain_bytes == wanted.chain_bytes
    and (not wanted.path or found.path == wanted.path)
end

local function in_tree(tenant, root, digits)
  local set = key('tree', tenant, root or '')
  return is('set', set) and call('SISMEMBER', set, digits) == 1
end

-- Whether the score of a leaf is its last use, and a tombstone's a time in ms, no earlier than its pins' end
-- (places.lua); and it has that place alone.
local function in_order(turn)
  local score, touched = turn.leaf_score, turn.fields.touched
  if turn.fields.deleted then
    score = turn.tombstone_score
    return score and score < touched and score >= tonumber(unpinned_from(key('pins', turn.tenant, turn.digits)))
      and not turn.leaf_score
  end
  return score and score == touched and not turn.tombstone_score
end

local function in_place(turn)
  local found = turn.fields
  local listed = in_tree(turn.tenant, found.root, turn.digits)
  if (found.children or 0) > 0 or turn.under_way then
    return found.touched and not listed and turn.places == 0
  end
  return found.touched and listed and in_order(turn)
end

local function tree_in_place(turn)
  local score, found = use(turn.tree_score), turn.fields
  if turn.parent ~= '' then
    return not turn.tree_score and not turn.there.tree
  elseif found.abandoned then
    return score == 0
  end
  return score and score >= (found.touched or 0)
end

local function rightly_listed(turn)
  if not is_conversation(turn.digits) or turn.fields.deleted then
    return not turn.listed_score
  end
  local created = turn.fields.created
  return turn.listed_score and (not created or turn.listed_score == created)
end

-- The index's entry for the words of a turn, nil where it lacks them, and the field of that entry.
local function said_of(turn)
  local index, name = entry_of(turn.tenant, turn.fields.said)
  return is('hash', index) and call('HGET', index, name) or nil, name
end

-- Whether the index of words names a turn that has some, and that may have them, or counts it.
local function rightly_said(turn)
  local said = turn.fields.said
  if not said then
    return true
  end
  local entry = said_of(turn)
  return #said == WORDS_LENGTH and not turn.fields.deleted and entry
    and (entry == turn.digits or count_of(entry) ~= nil)
end

-- The field, in hex, under which the index counts a turn among those with its words; else '-'.
local function counted_as(turn)
  local entry, name
  if turn.fields.said then
    entry, name = said_of(turn)
  end
  return entry and count_of(entry) and #name == WORDS_NAME and hex_of(name) or '-'
end

-- Of a picture how many turns show it, -1 for no number, and the length of its bytes, 0 where it is missing.
local function picture_in(tenant, digest)
  local picture = key('picture', tenant, digest)
  if not is('hash', picture) then
    return -1, 0
  end
  return integer(call('HGET', picture, 'turns')) or -1, call('HSTRLEN', picture, 'bytes')
end

-- The digests of the pictures that a turn says it shows, how many there are, and those among them that are there, each once.
local function pictures_of(turn)
  local said, number, there = '', 0, ''
  for digest in string.gmatch(turn.fields.pictures or '', string.rep('%x', 64)) do
    local _, length = picture_in(turn.tenant, digest)
    said, number = said .. digest, number + 1
    there = there .. (length > 0 and not string.find(there, digest, 1, true) and digest or '')
  end
  return said, number, there
end

-- Whether pins go once they no longer count: their key is kept for as long as the last of them (pins.lua).
local function pins_end(pins)
  local left = call('PTTL', pins)
  return left ~= -1 and tonumber(unpinned_from(pins)) <= now_ms + left + PIN_SLACK_MS
end

local function held_now(turn)
  local function length(family)
    return call('STRLEN', key(family, turn.tenant, turn.digits))
  end
  local held = held_for(turn.tenant, turn.fields.depth or 1, length('messages'), length('response'), length('remains'))
    + (turn.fields.said and WORDS_BYTES or 0)
  if not turn.under_way then
    return held
  end
  local said, bytes = '', nil
  if turn.there.job then
    said, bytes = unpack(call('HMGET', turn.job, 'steers', 'steer_bytes'))
  end
  local _, times = string.gsub(said or '', '%S+', '')
  return held + JOB_BYTES + length('spec') + times * SAID_BYTES + (integer(bytes) or 0)
end

local function marked(turn)
  local root = key('node', turn.tenant, turn.fields.root or '')
  return not turn.fields.erased or not is('hash', root) or call('HEXISTS', root, 'has_erased') == 1
end

-- The kinds of a turn's blobs, and whether a later release wrote them.
local function read_heads(turn, version)
  local messages, response = key('messages', turn.tenant, turn.digits), key('response', turn.tenant, turn.digits)
  local head = call('GETRANGE', messages, 0, HEAD_BYTES - 1)
  local response_version = string.byte(call('GETRANGE', response, 0, 0)) or 0
  turn.messages, turn.messages_bytes = messages_in(head), call('STRLEN', messages)
  turn.answered, turn.response_bytes = response_version > 0, call('STRLEN', response)
  turn.newer = math.max(string.byte(head) or 0, response_version) > version
end

local function judge_node(turn, words)
  local found = turn.fields
  local deleted = found.deleted
  local function note(word, wrong)
    words[#words + 1] = wrong and word or nil
  end
  local wanted = derived(turn)
  note('no-parent', not wanted)
  note('no-messages', not turn.messages)
  note('lineage', wanted and turn.messages and not follows(found, wanted))
  note('no-response', not deleted and not turn.answered)
  note('kept-response', (deleted and turn.there.response) or (not deleted and turn.answered and turn.there.remains))
  note('length', found.messages_bytes ~= turn.messages_bytes
    or found.response_bytes ~= (deleted and 0 or turn.response_bytes))
  note('held', found.held ~= held_now(turn))
  note('endless-pin', turn.there.pins and not pins_end(key('pins', turn.tenant, turn.digits)))
  note('leaf', not in_place(turn))
  note('tree', not tree_in_place(turn))
  note('index', (turn.own_tree_score or nil) ~= tonumber(turn.tree_score or nil))
  note('created', not found.created)
  note('list', not rightly_listed(turn))
  note('said', not rightly_said(turn))
  note('no-picture', found.pictures and found.pictures ~= select(3, pictures_of(turn)))
  note('not-marked', not marked(turn))
  note('unneeded', deleted and found.children == 0 and not pinned(key('pins', turn.tenant, turn.digits)))
end

local function judge_keys(turn, version, words)
  if turn.there.node then
    turn.fields = fields_of(turn.node)
    turn.parent = turn.fields.parent
    turn.under_way = is_under_way(turn)
  end
  if #turn.mistyped > 0 then
    words[1] = 'mistyped'
  elseif not turn.there.node then
    words[1] = (turn.any or turn.places > 0 or turn.tree_score or turn.own_tree_score or turn.listed_score)
      and 'no-node' or nil
  elseif not (turn.parent and turn.fields.status and turn.fields.continuable and turn.fields.digest) then
    words[1] = 'damaged'
  else
    read_heads(turn, version)
    if not turn.newer then
      judge_node(turn, words)
      judge_work(turn, words)
    end
  end
end

-- The turn, and the words for what is wrong with it. Of a turn that the set of the tree `listed` names, or the place of
-- jobs or logs with that name, where that isn't '', only whether it belongs there.
local function judge(tenant, digits, listed, version)
  local words = {}
  if #listed == DIGITS then
    words[1] = in_tree(tenant, listed, digits) and root_of(tenant, digits) ~= listed and 'stray' or nil
  elseif listed == 'changes' then
    words[1] = is_unqueued(tenant, digits) and 'not-queued' or nil
  elseif listed ~= '' then
    words[1] = is_strange(tenant, digits, listed) and 'stray-place' or nil
  end
  if listed ~= '' then
    return { tenant = tenant, digits = digits, member = tenant .. '/' .. digits .. '/' .. listed }, words
  end
  local turn = facts_of(tenant, digits)
  judge_keys(turn, version, words)
  return turn, words
end

-- TENANT/DIGITS of turns; or TENANT/DIGITS/ROOT of what the set of a tree names, or TENANT/DIGITS/PLACE of what leases,
-- logs, queued:LEVEL or line:LEVEL does, or said:FIELD of the index of words; or TENANT/ROOT/changes of what an archive lacks of
-- a tree; or TENANT/HEX of a picture; with spaces between.
local function each_member(members)
  return string.gmatch(members, '([^/ ]+)/(%x+)/?([%w:]*)')
end
