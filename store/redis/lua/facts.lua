--- include clock
--- include orders
-- Shared by the scripts that check and repair: what is stored of one turn at one moment, however damaged.
-- Invariant: nothing changes, and no value is so wrong that a script breaks off.

local KINDS = {
  { 'node', 'hash' }, { 'messages', 'string' }, { 'response', 'string' }, { 'pins', 'zset' }, { 'tree', 'set' },
  { 'runs', 'zset' }, { 'job', 'hash' }, { 'spec', 'string' }, { 'log', 'stream' }, { 'snapshot', 'string' },
  { 'remains', 'string' },
}
local DIGITS = 48
local FIELDS = { 'depth', 'children', 'touched', 'messages_bytes', 'response_bytes', 'chain_messages', 'chain_bytes',
  'held', 'created', 'parent', 'root', 'status', 'continuable', 'digest', 'path', 'deleted', 'erased', 'abandoned', 'background',
  'submission', 'fleeting', 'log_bytes', 'jobs', 'said', 'pictures' }
local NUMBERS = 9

-- A number that Redis can count with; nil of any other, as one with zeros before it.
local function integer(value)
  local counts = value and #value < 18 and (value == '0' or string.match(value, '^%-?[1-9]%d*$'))
  return counts and tonumber(value) or nil
end

local function is(kind, name)
  return call('TYPE', name).ok == kind
end

local function score_in(place, member)
  return is('zset', place) and tonumber(call('ZSCORE', place, member) or nil)
end

-- A score that can be: none is later than the clock, or than now where the clock is lost.
local function use(score)
  score = tonumber(score)
  return score and score <= math.max(tonumber(call('GET', clock)) or 0, now_us) and score
end

-- The fields of a node: the first of FIELDS as numbers. A value that is no number or can't be a parent counts as absent.
local function fields_of(node)
  local values, found = call('HMGET', node, unpack(FIELDS)), {}
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
  local node = key('node', tenant, digits)
  return is('hash', node) and call('HGET', node, 'root')
end

local function facts_of(tenant, digits)
  local turn = { tenant = tenant, digits = digits, member = tenant .. '/' .. digits }
  turn.there, turn.mistyped, turn.any = {}, {}, false
  for _, family in ipairs(KINDS) do
    local kind = call('TYPE', key(family[1], tenant, digits)).ok
    turn.there[family[1]] = kind == family[2]
    turn.any = turn.any or kind ~= 'none'
    if kind ~= 'none' and kind ~= family[2] then
      turn.mistyped[#turn.mistyped + 1] = key(family[1], tenant, digits)
    end
  end
  turn.node, turn.job = key('node', tenant, digits), key('job', tenant, digits)
  turn.leaf_score = score_in(leaves_of(tenant), digits)
  turn.tombstone_score = score_in(shard_key('tombstones'), turn.member)
  turn.listed_score = score_in(list_of(tenant), digits)
  turn.places = (turn.leaf_score and 1 or 0) + (turn.tombstone_score and 1 or 0)
  turn.tree_score = call('ZSCORE', trees, turn.member)
  turn.own_tree_score = score_in(trees_of(tenant), digits)
  return turn
end
