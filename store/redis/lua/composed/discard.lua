#!lua flags=allow-oom
local clock = KEYS[1]; local usage = KEYS[2]; local leaves = KEYS[3]; local trees = KEYS[4]; local turns = ARGV[1]; local top = ARGV[2]; local members = ARGV[3]; local version = tonumber(ARGV[4])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local CONVERSATION_MARK = '636f6e766572'

local function note_logged(bytes)
  local total = redis.call('INCRBY', (shard .. 'logged'), (string.format('%.0f', bytes)))
  if total == 0 then
    redis.call('DEL', (shard .. 'logged'))
  end
  return total
end

local function drop_log(tenant, digits, log_bytes)
  redis.call('UNLINK', (turns .. tenant .. ':' .. 'log' .. ':' .. digits), (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
  redis.call('ZREM', (shard .. 'logs'), tenant .. '/' .. digits)
  note_logged(0 - log_bytes)
  do
    local tenant, digits, payload = tenant, digits, 'gone'
    redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'events' .. ':' .. digits), payload)
  end
end
local ENTRY_BYTES = 32

local LEVELS = 4
local RESUMED = 0
local function enqueue(level, tenant, digits, sequence, gave_way)
  local turn = ((shard .. 'turn') .. ':' .. level .. (nil and ':' .. nil or ''))
  if not redis.call('ZSCORE', turn, tenant) then
    local first, last = redis.call('ZRANGE', turn, 0, 0, 'WITHSCORES')[2], redis.call('ZRANGE', turn, -1, -1, 'WITHSCORES')[2]
    redis.call('ZADD', turn, gave_way and (last or -1) + 1 or (first or 1) - 1, tenant)
  end
  redis.call('ZADD', ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or '')), sequence, digits)
  redis.call('ZADD', ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), now_ms, tenant .. '/' .. digits)
  redis.call('HSET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'level', level, 'token', '')
  do
    local word = 'work'
    redis.call('SPUBLISH', (shard .. 'control'), word)
  end
end

local PATH_TURNS = 32

local function path_from(tenant, parent)
  local found = { parent }
  for at = 2, PATH_TURNS do
    found[at] = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. (found[at - 1])), 'parent')
  end
  return table.concat(found)
end

local KINDS = {
  { 'node', 'hash' }, { 'messages', 'string' }, { 'response', 'string' }, { 'pins', 'zset' }, { 'tree', 'set' },
  { 'runs', 'zset' }, { 'job', 'hash' }, { 'spec', 'string' }, { 'log', 'stream' }, { 'snapshot', 'string' },
  { 'remains', 'string' },
}
local DIGITS = 48
local FIELDS = { 'depth', 'children', 'touched', 'messages_bytes', 'response_bytes', 'chain_messages', 'chain_bytes',
  'held', 'created', 'parent', 'root', 'status', 'continuable', 'digest', 'path', 'deleted', 'erased', 'abandoned', 'background',
  'submission', 'fleeting', 'log_bytes', 'jobs' }
local NUMBERS = 9

local function integer(value)
  local counts = value and #value < 18 and (value == '0' or string.match(value, '^%-?[1-9]%d*$'))
  return counts and tonumber(value) or nil
end

local function score_in(place, member)
  return (redis.call('TYPE', place).ok == 'zset') and tonumber(redis.call('ZSCORE', place, member) or nil)
end

local function use(score)
  score = tonumber(score)
  return score and score <= math.max(tonumber(redis.call('GET', clock)) or 0, now_us) and score
end

local function fields_of(node)
  local values, found = redis.call('HMGET', node, unpack(FIELDS)), {}
  for at, name in ipairs(FIELDS) do
    found[name] = at > NUMBERS and values[at] or integer(values[at])
  end
  found.touched = use(found.touched)
  local parent = found.parent
  if parent and parent ~= '' and (#parent ~= DIGITS or string.match(parent, '%X')) then
    found.parent = nil
  end
  return found
end

local function root_of(tenant, digits)
  local node = (turns .. tenant .. ':' .. 'node' .. ':' .. digits)
  return (redis.call('TYPE', node).ok == 'hash') and redis.call('HGET', node, 'root')
end

local function facts_of(tenant, digits)
  local turn = { tenant = tenant, digits = digits, member = tenant .. '/' .. digits }
  turn.there, turn.mistyped, turn.any = {}, {}, false
  for _, family in ipairs(KINDS) do
    local kind = redis.call('TYPE', (turns .. tenant .. ':' .. (family[1]) .. ':' .. digits)).ok
    turn.there[family[1]] = kind == family[2]
    turn.any = turn.any or kind ~= 'none'
    if kind ~= 'none' and kind ~= family[2] then
      turn.mistyped[#turn.mistyped + 1] = (turns .. tenant .. ':' .. (family[1]) .. ':' .. digits)
    end
  end
  turn.node, turn.job = (turns .. tenant .. ':' .. 'node' .. ':' .. digits), (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  turn.leaf_score, turn.former_score = score_in((leaves .. ':' .. tenant), digits), ((redis.call('TYPE', leaves).ok == 'zset') and tonumber(redis.call('ZSCORE', leaves, turn.member) or nil))
  turn.tombstone_score = score_in((shard .. 'tombstones'), turn.member)
  turn.listed_score = score_in(((shard .. ('conversations:' .. tenant))), digits)
  turn.places = (turn.leaf_score and 1 or 0) + (turn.tombstone_score and 1 or 0)
  turn.tree_score = redis.call('ZSCORE', trees, turn.member)
  turn.own_tree_score = score_in((trees .. ':' .. tenant), digits)
  return turn
end
local RUNNING = { queued = true, in_progress = true }
local MODES = { plain = true, stream = true }
local MOST_ENTRIES = 200
local ROUGHLY = 4
local FARTHEST = 1e15
local DAY_MS = 86400000

local function place_of(tenant, digits, name)
  if string.match(name, '^line:') then
    return (shard .. name) .. ':' .. tenant, digits
  end
  return (shard .. name), tenant .. '/' .. digits
end

local function is_strange(tenant, digits, name)
  local place, member = place_of(tenant, digits, name)
  if not ((redis.call('TYPE', place).ok == 'zset') and tonumber(redis.call('ZSCORE', place, member) or nil)) then
    return false
  end
  local node, job = (turns .. tenant .. ':' .. 'node' .. ':' .. digits), (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  if name == 'logs' then
    return not (redis.call('TYPE', node).ok == 'hash') or redis.call('HEXISTS', node, 'log_bytes') == 0
  elseif not (redis.call('TYPE', job).ok == 'hash') then
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

local function is_placed(turn, job)
  if job.token ~= '' then
    local ends = score_in((shard .. 'leases'), turn.member)
    return job.level == '' and ends and ends < now_ms + DAY_MS
  end
  local level = job.level
  if level == '' then
    return false
  end
  local since = score_in(((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), turn.member)
  local order = score_in(((shard .. 'turn') .. ':' .. level .. (nil and ':' .. nil or '')), turn.tenant)
  return since and since < now_ms + DAY_MS and order and math.abs(order) < FARTHEST
    and score_in(((shard .. 'line') .. ':' .. level .. (turn.tenant and ':' .. turn.tenant or '')), turn.digits) == integer(job.sequence)
end

local function measured(turn, exactly)
  local log = (turns .. turn.tenant .. ':' .. 'log' .. ':' .. turn.digits)
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

local function is_size(turn, bytes, noted, snapshot)
  if bytes then
    return noted == bytes + snapshot
  end
  local held = redis.call('MEMORY', 'USAGE', (turns .. turn.tenant .. ':' .. 'log' .. ':' .. turn.digits), 'SAMPLES', 0) + snapshot
  return noted and noted > held / ROUGHLY and noted < held * ROUGHLY
end

local function is_logged(turn)
  local noted, due = integer(turn.fields.log_bytes), score_in((shard .. 'logs'), turn.member)
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
  local snapshot = redis.call('STRLEN', (turns .. turn.tenant .. ':' .. 'snapshot' .. ':' .. turn.digits))
  return job.last == last and is_size(turn, bytes, job.log_bytes, snapshot)
    and snapshot == (integer(job.snapshot_bytes) or 0) and (snapshot == 0 or (string.match(redis.call('GETRANGE', (turns .. turn.tenant .. ':' .. 'snapshot' .. ':' .. turn.digits), 0, 20), '^%d+ ')))
end

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
  note('no-work', redis.call('STRLEN', (turns .. turn.tenant .. ':' .. 'spec' .. ':' .. turn.digits)) == 0)
  note('standing', not stands(turn, job))
  note('no-job', not job)
  if job then
    note('no-place', not is_placed(turn, job))
    note('events', not is_journaled(turn, job))
  end
end

local HEAD_BYTES = 6
local SLACK_BYTES, SLACK_SHARE = 64, 4
local PIN_SLACK_MS = 1000

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

local function derived(turn)
  local found, own = turn.fields, { bytes = turn.messages_bytes, messages = turn.messages }
  local root, depth, chain_messages, chain_bytes, path = turn.digits, 1, 0, 0, false
  if turn.parent ~= '' then
    local node = (turns .. turn.tenant .. ':' .. 'node' .. ':' .. turn.parent)
    if not (redis.call('TYPE', node).ok == 'hash') then
      return nil
    end
    local above = redis.call('HMGET', node, 'root', 'depth', 'chain_messages', 'chain_bytes')
    if not (above[1] and integer(above[2]) and integer(above[3]) and integer(above[4])) then
      return nil
    end
    root, depth, chain_messages, chain_bytes = above[1], above[2] + 1, integer(above[3]), integer(above[4])
    if (depth > PATH_TURNS and depth % PATH_TURNS == 1) then
      local unbroken, above_it = pcall(path_from, turn.tenant, turn.parent)
      path = unbroken and above_it or found.path
    end
  end
  if found.erased then
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
  local set = (turns .. tenant .. ':' .. 'tree' .. ':' .. (root or ''))
  return (redis.call('TYPE', set).ok == 'set') and redis.call('SISMEMBER', set, digits) == 1
end

local function in_order(turn)
  local score, touched = turn.leaf_score or turn.former_score, turn.fields.touched
  if turn.fields.deleted then
    score = turn.tombstone_score or turn.former_score
    return score and score < touched and score >= tonumber((redis.call('ZRANGE', ((turns .. turn.tenant .. ':' .. 'pins' .. ':' .. turn.digits)), -1, -1, 'WITHSCORES')[2] or 0))
      and (not turn.leaf_score or former > 0)
  end
  return score and (score == touched or (score < touched and former > 0)) and not turn.tombstone_score
end

local function in_place(turn)
  local found = turn.fields
  local listed
  do
    local tenant, root, digits = turn.tenant, found.root, turn.digits
    local set = (turns .. tenant .. ':' .. 'tree' .. ':' .. (root or ''))
    listed = (redis.call('TYPE', set).ok == 'set') and redis.call('SISMEMBER', set, digits) == 1
  end
  if (found.children or 0) > 0 or turn.under_way then
    return found.touched and not listed and not turn.former_score and (turn.places == 0 or former > 0)
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

local function rightly_indexed(turn)
  local score, own = tonumber(turn.tree_score or nil), turn.own_tree_score or nil
  return own == score or (former > 0 and score and (not own or own < score))
end

local function rightly_listed(turn)
  if not (string.sub(turn.digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) or turn.fields.deleted then
    return not turn.listed_score
  end
  local created = turn.fields.created
  return turn.listed_score and (not created or turn.listed_score == created)
end

local function pins_end(pins)
  local left = redis.call('PTTL', pins)
  return left ~= -1 and tonumber((redis.call('ZRANGE', pins, -1, -1, 'WITHSCORES')[2] or 0)) <= now_ms + left + PIN_SLACK_MS
end

local function held_now(turn)
  local messages, response = (turns .. turn.tenant .. ':' .. 'messages' .. ':' .. turn.digits), (turns .. turn.tenant .. ':' .. 'response' .. ':' .. turn.digits)
  local held = ((redis.call('MEMORY', 'USAGE', turn.node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', messages, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', response, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
    + ((redis.call('MEMORY', 'USAGE', ((turns .. turn.tenant .. ':' .. 'remains' .. ':' .. turn.digits)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
  return turn.under_way and held + ((redis.call('MEMORY', 'USAGE', turn.job, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', ((turns .. turn.tenant .. ':' .. 'spec' .. ':' .. turn.digits)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) or held
end

local function held_in_full(turn)
  local noted, real = turn.fields.held, held_now(turn)
  return noted and math.abs(real - noted) <= SLACK_BYTES + real / SLACK_SHARE
end

local function marked(turn)
  local root = (turns .. turn.tenant .. ':' .. 'node' .. ':' .. (turn.fields.root or ''))
  return not turn.fields.erased or not (redis.call('TYPE', root).ok == 'hash') or redis.call('HEXISTS', root, 'has_erased') == 1
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
  note('kept-response', (deleted and turn.there.response) or (not deleted and turn.there.remains))
  note('length', found.messages_bytes ~= turn.messages_bytes
    or found.response_bytes ~= (deleted and 0 or turn.response_bytes))
  note('held', not held_in_full(turn))
  note('endless-pin', turn.there.pins and not pins_end((turns .. turn.tenant .. ':' .. 'pins' .. ':' .. turn.digits)))
  note('leaf', not in_place(turn))
  note('tree', not tree_in_place(turn))
  note('index', not rightly_indexed(turn))
  note('created', not found.created)
  note('list', not rightly_listed(turn))
  note('not-marked', not marked(turn))
  note('unneeded', deleted and found.children == 0 and not (redis.call('ZCOUNT', ((turns .. turn.tenant .. ':' .. 'pins' .. ':' .. turn.digits)), '(' .. now_ms, '+inf') > 0))
end

local function judge(tenant, digits, listed, version)
  local words = {}
  if #listed == DIGITS then
    words[1] = in_tree(tenant, listed, digits) and root_of(tenant, digits) ~= listed and 'stray' or nil
  elseif listed ~= '' then
    words[1] = is_strange(tenant, digits, listed) and 'stray-place' or nil
  end
  if listed ~= '' then
    return { tenant = tenant, digits = digits, member = tenant .. '/' .. digits .. '/' .. listed }, words
  end
  local turn = facts_of(tenant, digits)
  do
    local turn, version, words = turn, version, words
    if turn.there.node then
      turn.fields = fields_of(turn.node)
      turn.parent = turn.fields.parent
      turn.under_way = is_under_way(turn)
    end
    if #turn.mistyped > 0 then
      words[1] = 'mistyped'
    elseif not turn.there.node then
      words[1] = turn.places > 0 and former > 0 and 'outlived' or nil
      words[1] = (turn.any or turn.former_score or turn.tree_score or turn.own_tree_score or turn.listed_score)
        and 'no-node' or words[1] or turn.places > 0 and 'no-node' or nil
    elseif not (turn.parent and turn.fields.status and turn.fields.continuable and turn.fields.digest) then
      words[1] = 'damaged'
    else
      do
        local turn, version = turn, version
        local messages, response = (turns .. turn.tenant .. ':' .. 'messages' .. ':' .. turn.digits), (turns .. turn.tenant .. ':' .. 'response' .. ':' .. turn.digits)
        local head = redis.call('GETRANGE', messages, 0, HEAD_BYTES - 1)
        local response_version = string.byte(redis.call('GETRANGE', response, 0, 0)) or 0
        turn.messages, turn.messages_bytes = messages_in(head), redis.call('STRLEN', messages)
        turn.answered, turn.response_bytes = response_version > 0, redis.call('STRLEN', response)
        turn.newer = math.max(string.byte(head) or 0, response_version) > version
      end
      if not turn.newer then
        judge_node(turn, words)
        judge_work(turn, words)
      end
    end
  end
  return turn, words
end

local job_repairs = {}

local function leave_place(place, member)
  if (redis.call('TYPE', place).ok == 'zset') then
    redis.call('ZREM', place, member)
  end
end

local function drop_job(turn)
  do
    local turn = turn
    for level = 0, LEVELS - 1 do
      do
        local place, member = ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), turn.member
        if (redis.call('TYPE', place).ok == 'zset') then
          redis.call('ZREM', place, member)
        end
      end
      do
        local place, member = ((shard .. 'line') .. ':' .. level .. (turn.tenant and ':' .. turn.tenant or '')), turn.digits
        if (redis.call('TYPE', place).ok == 'zset') then
          redis.call('ZREM', place, member)
        end
      end
    end
    do
      local place, member = (shard .. 'leases'), turn.member
      if (redis.call('TYPE', place).ok == 'zset') then
        redis.call('ZREM', place, member)
      end
    end
  end
  redis.call('UNLINK', turn.job, (turns .. turn.tenant .. ':' .. 'spec' .. ':' .. turn.digits))
end

job_repairs['no-work'] = function(turn)
  redis.call('SET', (turns .. turn.tenant .. ':' .. 'spec' .. ':' .. turn.digits), '\0')
end

job_repairs['stray-job'] = drop_job

job_repairs['stray-place'] = function(turn, name)
  local tenant, digits = turn.tenant, string.match(turn.digits, '^%x+')
  leave_place(place_of(tenant, digits, name))
end

job_repairs['no-place'] = function(turn)
  do
    local turn = turn
    for level = 0, LEVELS - 1 do
      do
        local place, member = ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), turn.member
        if (redis.call('TYPE', place).ok == 'zset') then
          redis.call('ZREM', place, member)
        end
      end
      do
        local place, member = ((shard .. 'line') .. ':' .. level .. (turn.tenant and ':' .. turn.tenant or '')), turn.digits
        if (redis.call('TYPE', place).ok == 'zset') then
          redis.call('ZREM', place, member)
        end
      end
    end
    do
      local place, member = (shard .. 'leases'), turn.member
      if (redis.call('TYPE', place).ok == 'zset') then
        redis.call('ZREM', place, member)
      end
    end
  end
  local order, line = ((shard .. 'turn') .. ':' .. RESUMED .. (nil and ':' .. nil or '')), ((shard .. 'line') .. ':' .. RESUMED .. (turn.tenant and ':' .. turn.tenant or ''))
  redis.call('ZREMRANGEBYSCORE', order, FARTHEST, '+inf')
  redis.call('ZREMRANGEBYSCORE', order, '-inf', -FARTHEST)
  if not (redis.call('TYPE', line).ok == 'zset') then
    redis.call('UNLINK', line)
  end
  enqueue(RESUMED, turn.tenant, turn.digits, redis.call('HGET', turn.job, 'sequence'))
end

local function note_job_events(turn)
  local snapshot = (turns .. turn.tenant .. ':' .. 'snapshot' .. ':' .. turn.digits)
  if not (string.match(redis.call('GETRANGE', (turns .. turn.tenant .. ':' .. 'snapshot' .. ':' .. turn.digits), 0, 20), '^%d+ ')) then
    redis.call('UNLINK', snapshot)
  end
  local last, bytes = measured(turn, true)
  local taken = redis.call('STRLEN', snapshot)
  redis.call('HSET', turn.job, 'last', (string.format('%.0f', last)), 'log_bytes', (string.format('%.0f', (bytes + taken))), 'snapshot_bytes', taken)
end

job_repairs['no-job'] = function(turn)
  local function number(name, otherwise)
    return (string.format('%.0f', (integer(redis.call('HGET', turn.job, name)) or otherwise)))
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
  do
    local turn = turn
    local snapshot = (turns .. turn.tenant .. ':' .. 'snapshot' .. ':' .. turn.digits)
    if not (string.match(redis.call('GETRANGE', (turns .. turn.tenant .. ':' .. 'snapshot' .. ':' .. turn.digits), 0, 20), '^%d+ ')) then
      redis.call('UNLINK', snapshot)
    end
    local last, bytes = measured(turn, true)
    local taken = redis.call('STRLEN', snapshot)
    redis.call('HSET', turn.job, 'last', (string.format('%.0f', last)), 'log_bytes', (string.format('%.0f', (bytes + taken))), 'snapshot_bytes', taken)
  end
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
  redis.call('UNLINK', (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
  redis.call('HSET', turn.node, 'log_bytes', (string.format('%.0f', bytes)))
  redis.call('ZADD', (shard .. 'logs'), now_ms, turn.member)
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
    redis.call('HSET', turn.job, 'started', (string.format('%.0f', now_ms)))
  elseif found.status ~= 'cancelled' then
    found.status = started and 'in_progress' or found.status == 'in_progress' and 'in_progress' or 'queued'
  end
  redis.call('HSET', node, 'status', found.status, 'continuable', 0, 'submission', found.digest, 'background',
    MODES[found.background] and found.background or 'stream')
end

local UNREADABLE = { damaged = true, lineage = true, ['no-parent'] = true, ['no-messages'] = true }

local function at_fault()
  for tenant, digits in (string.gmatch(top, '([^/ ]+)/(%x+)/?([%w:]*)')) do
    local _, words = judge(tenant, digits, '', version)
    for _, word in ipairs(words) do
      if UNREADABLE[word] then
        return true
      end
    end
  end
  return false
end

local function leave_parent(tenant, parent)
  if not facts_of(tenant, parent).there.node then
    return
  end
  local above
  do
    local node = (turns .. tenant .. ':' .. 'node' .. ':' .. parent)
    local values, found = redis.call('HMGET', node, unpack(FIELDS)), {}
    for at, name in ipairs(FIELDS) do
      found[name] = at > NUMBERS and values[at] or integer(values[at])
    end
    found.touched = use(found.touched)
    local parent = found.parent
    if parent and parent ~= '' and (#parent ~= DIGITS or string.match(parent, '%X')) then
      found.parent = nil
    end
    above = found
  end
  if not above.children or not above.root or not above.touched then
    return
  end
  redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. parent), 'children', (string.format('%.0f', (math.max(0, above.children - 1)))))
  if above.children <= 1 then
    do
      local turn, deleted, touched = { tenant = tenant, digits = parent }, above.deleted, above.touched
      do
        local turn = turn
        for _, deleted in ipairs({ true, false }) do
          if deleted or (redis.call('TYPE', ((leaves .. ':' .. turn.tenant))).ok == 'zset') then
            do
              local tenant, digits, deleted = turn.tenant, turn.digits, deleted
              local gone
              if deleted then
                gone = redis.call('ZREM', (shard .. 'tombstones'), tenant .. '/' .. digits)
              else
                gone = redis.call('ZREM', (leaves .. ':' .. tenant), digits)
              end
              do
                local tenant, field, change = tenant, 'bytes', -LEAF_BYTES * gone
                local own = owned[tenant]
                if not own then
                  own = { responses = 0, bytes = 0 }
                  owned[tenant] = own
                end
                own[field] = (own[field] or 0) + change
                counted[field] = counted[field] + change
              end
              do
                local tenant, digits = tenant, digits
                if former > 0 then
                  former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
                end
              end
            end
          end
        end
      end
      if deleted then
        do
          local tenant, digits, unpinned = turn.tenant, turn.digits, (redis.call('ZRANGE', ((turns .. turn.tenant .. ':' .. 'pins' .. ':' .. turn.digits)), -1, -1, 'WITHSCORES')[2] or 0)
          local added = redis.call('ZADD', (shard .. 'tombstones'), unpinned, tenant .. '/' .. digits)
          do
            local tenant, field, change = tenant, 'bytes', LEAF_BYTES * added
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end
      elseif (redis.call('TYPE', ((leaves .. ':' .. turn.tenant))).ok == 'zset') or (redis.call('TYPE', ((leaves .. ':' .. turn.tenant))).ok == 'none') then
        do
          local tenant, digits, score = turn.tenant, turn.digits, (string.format('%.0f', touched))
          do
            local tenant, field, change = tenant, 'bytes', LEAF_BYTES * redis.call('ZADD', (leaves .. ':' .. tenant), score, digits)
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end
      end
    end
    do
      local tenant, root, digits = tenant, above.root, parent
      local set = (turns .. tenant .. ':' .. 'tree' .. ':' .. root)
      if (redis.call('TYPE', set).ok == 'set') or (redis.call('TYPE', set).ok == 'none') then
        redis.call('SADD', set, digits)
      end
    end
  end
end

local function discard(tenant, digits)
  local turn = facts_of(tenant, digits)
  if not turn.there.node then
    return
  end
  local found = fields_of(turn.node)
  turn.fields = found
  if is_under_way(turn) then
    do
      local turn = turn
      local root = (turns .. turn.tenant .. ':' .. 'node' .. ':' .. (turn.fields.root or ''))
      local noted = (redis.call('TYPE', root).ok == 'hash') and integer(redis.call('HGET', root, 'jobs'))
      if noted and noted > 1 then
        redis.call('HSET', root, 'jobs', (string.format('%.0f', (noted - 1))))
      elseif noted then
        redis.call('HDEL', root, 'jobs')
      end
    end
  end
  do
    local turn = turn
    for level = 0, LEVELS - 1 do
      do
        local place, member = ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), turn.member
        if (redis.call('TYPE', place).ok == 'zset') then
          redis.call('ZREM', place, member)
        end
      end
      do
        local place, member = ((shard .. 'line') .. ':' .. level .. (turn.tenant and ':' .. turn.tenant or '')), turn.digits
        if (redis.call('TYPE', place).ok == 'zset') then
          redis.call('ZREM', place, member)
        end
      end
    end
    do
      local place, member = (shard .. 'leases'), turn.member
      if (redis.call('TYPE', place).ok == 'zset') then
        redis.call('ZREM', place, member)
      end
    end
  end
  do
    local tenant, digits, log_bytes = tenant, digits, (integer(turn.there.job and redis.call('HGET', turn.job, 'log_bytes') or turn.fields.log_bytes) or 0)
    redis.call('UNLINK', (turns .. tenant .. ':' .. 'log' .. ':' .. digits), (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
    redis.call('ZREM', (shard .. 'logs'), tenant .. '/' .. digits)
    note_logged(0 - log_bytes)
    do
      local tenant, digits, payload = tenant, digits, 'gone'
      redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'events' .. ':' .. digits), payload)
    end
  end
  for _, family in ipairs(KINDS) do
    redis.call('UNLINK', (turns .. tenant .. ':' .. (family[1]) .. ':' .. digits))
  end
  do
    local turn = turn
    for _, deleted in ipairs({ true, false }) do
      if deleted or (redis.call('TYPE', ((leaves .. ':' .. turn.tenant))).ok == 'zset') then
        do
          local tenant, digits, deleted = turn.tenant, turn.digits, deleted
          local gone
          if deleted then
            gone = redis.call('ZREM', (shard .. 'tombstones'), tenant .. '/' .. digits)
          else
            gone = redis.call('ZREM', (leaves .. ':' .. tenant), digits)
          end
          do
            local tenant, field, change = tenant, 'bytes', -LEAF_BYTES * gone
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
          do
            local tenant, digits = tenant, digits
            if former > 0 then
              former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
            end
          end
        end
      end
    end
  end
  if turn.listed_score then
    do
      local tenant, digits = tenant, digits
      do
        local tenant, field, change = tenant, 'bytes', -LISTED_BYTES * redis.call('ZREM', ((shard .. ('conversations:' .. tenant))), digits)
        local own = owned[tenant]
        if not own then
          own = { responses = 0, bytes = 0 }
          owned[tenant] = own
        end
        own[field] = (own[field] or 0) + change
        counted[field] = counted[field] + change
      end
    end
  end
  do
    local turn = turn
    if ((redis.call('TYPE', ((trees .. ':' .. turn.tenant))).ok == 'zset') or (redis.call('TYPE', ((trees .. ':' .. turn.tenant))).ok == 'none')) then
      do
        local tenant, root = turn.tenant, turn.digits
        redis.call('ZREM', trees, tenant .. '/' .. root)
        do
          local tenant, field, change = tenant, 'bytes', -INDEXED_BYTES * redis.call('ZREM', (trees .. ':' .. tenant), root)
          local own = owned[tenant]
          if not own then
            own = { responses = 0, bytes = 0 }
            owned[tenant] = own
          end
          own[field] = (own[field] or 0) + change
          counted[field] = counted[field] + change
        end
      end
    end
  end
  do
    local tenant, root, digits = tenant, found.root, digits
    local set = (turns .. tenant .. ':' .. 'tree' .. ':' .. (root or ''))
    if (redis.call('TYPE', set).ok == 'set') then
      redis.call('SREM', set, digits)
    end
  end
  do
    local tenant, field, change = tenant, found.deleted and 'tombstones' or 'responses', -1
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  do
    local tenant, field, change = tenant, 'trees', found.parent == '' and -1 or 0
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  do
    local tenant, field, change = tenant, 'bytes', -(found.held or 0)
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  if found.parent and found.parent ~= '' then
    leave_parent(tenant, found.parent)
  end
end

if not at_fault() then
  return { 'sound' }
end
for tenant, digits in (string.gmatch(members, '([^/ ]+)/(%x+)/?([%w:]*)')) do
  discard(tenant, digits)
end
do
  local changed = {}
  for tenant, own in pairs(owned) do
    own.bytes = own.bytes + (own.trees or 0) * TREE_BYTES
    for field, change in pairs(own) do
      if change ~= 0 then
        do
          local tenant, field, change = tenant, field, change
          if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
            redis.call('ZREM', usage .. ':' .. field, tenant)
          end
        end
        if counted[field] == 0 then
          redis.call('HDEL', usage, field)
        else
          changed[#changed + 1], changed[#changed + 2] = field, counted[field]
        end
      end
    end
  end
  if changed[1] then
    redis.call('HSET', usage, unpack(changed))
  end
  owned = {}
end
return { 'ok' }
