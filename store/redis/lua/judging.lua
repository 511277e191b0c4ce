--- include judging_jobs
--- include usage
--- include walk
-- Shared by the scripts that check and repair: what is wrong with one turn, by what is stored at one moment.
-- Arguments: version  the newest format version that is known
-- Invariant: nothing changes. Every change of the store is one script, so each of these faults is one at any moment.
-- Only one word is no fault: 'unneeded', a tombstone that the next sweep removes.
--
-- A turn's parent link is the truth. What a node repeats of those above it (root, depth, chain_messages, chain_bytes,
-- path) has to follow from that link. store/fsck/faults.py says what each word means.

local HEAD_BYTES = 6
local SLACK_BYTES, SLACK_SHARE = 64, 4
local PIN_SLACK_MS = 1000

-- How many messages a blob has, whose first bytes are a format version and the head of a msgpack array; nil of anything
-- else.
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
    local above = redis.call('HMGET', node, 'root', 'depth', 'chain_messages', 'chain_bytes')
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
  return is('set', set) and redis.call('SISMEMBER', set, digits) == 1
end

-- Whether the score of a leaf is its last use, and a tombstone's a time in ms, no earlier than its pins' end
-- (leaves.lua); and it has that place alone.
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

-- Whether the trees of its tenant have it where those of all tenants do.
local function rightly_indexed(turn)
  return (turn.own_tree_score or nil) == tonumber(turn.tree_score or nil)
end

local function rightly_listed(turn)
  if not is_conversation(turn.digits) or turn.fields.deleted then
    return not turn.listed_score
  end
  local created = turn.fields.created
  return turn.listed_score and (not created or turn.listed_score == created)
end

-- Whether pins go once they no longer count: their key is kept for as long as the last of them (pins.lua).
local function pins_end(pins)
  local left = redis.call('PTTL', pins)
  return left ~= -1 and tonumber(unpinned_from(pins)) <= now_ms + left + PIN_SLACK_MS
end

local function held_now(turn)
  local messages, response = key('messages', turn.tenant, turn.digits), key('response', turn.tenant, turn.digits)
  local held = held_by(turn.node) + held_by(messages) + held_by(response)
    + held_by(key('remains', turn.tenant, turn.digits))
  return turn.under_way and held + held_by(turn.job) + held_by(key('spec', turn.tenant, turn.digits)) or held
end

local function held_in_full(turn)
  local noted, real = turn.fields.held, held_now(turn)
  return noted and math.abs(real - noted) <= SLACK_BYTES + real / SLACK_SHARE
end

local function marked(turn)
  local root = key('node', turn.tenant, turn.fields.root or '')
  return not turn.fields.erased or not is('hash', root) or redis.call('HEXISTS', root, 'has_erased') == 1
end

-- The kinds of a turn's blobs, and whether a later release wrote them.
local function read_heads(turn, version)
  local messages, response = key('messages', turn.tenant, turn.digits), key('response', turn.tenant, turn.digits)
  local head = redis.call('GETRANGE', messages, 0, HEAD_BYTES - 1)
  local response_version = string.byte(redis.call('GETRANGE', response, 0, 0)) or 0
  turn.messages, turn.messages_bytes = messages_in(head), redis.call('STRLEN', messages)
  turn.answered, turn.response_bytes = response_version > 0, redis.call('STRLEN', response)
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
  note('kept-response', (deleted and turn.there.response) or (not deleted and turn.there.remains))
  note('length', found.messages_bytes ~= turn.messages_bytes
    or found.response_bytes ~= (deleted and 0 or turn.response_bytes))
  note('held', not held_in_full(turn))
  note('endless-pin', turn.there.pins and not pins_end(key('pins', turn.tenant, turn.digits)))
  note('leaf', not in_place(turn))
  note('tree', not tree_in_place(turn))
  note('index', not rightly_indexed(turn))
  note('created', not found.created)
  note('list', not rightly_listed(turn))
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
-- logs, queued:LEVEL or line:LEVEL does; with spaces between.
local function each_member(members)
  return string.gmatch(members, '([^/ ]+)/(%x+)/?([%w:]*)')
end
