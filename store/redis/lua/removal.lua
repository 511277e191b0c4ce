--- include logs
--- include pictures
--- include pins
--- include places
--- include said
--- include unarchived
-- Shared by the scripts that take turns away, of any tenant of the shard.
-- Invariant: a turn whose last child goes is a leaf again, as recently used as it or that child was; a tombstone is then
-- among those that sweep.lua takes once nothing needs them.

local LOOKS = 500 -- the most turns and trees that have to stay which one call passes over: a millisecond or two

-- Most turns have no pins, and to find that out is cheaper than to count them.
local function held_for_a_run(family, tenant, digits)
  local pins = key(family, tenant, digits)
  return call('EXISTS', pins) == 1 and pinned(pins)
end

-- Whether a run holds a leaf of which this is known, a job is to be added to it, or the archive lacks it; and whether it will
-- have it soon.
local function is_held(tenant, digits, turn)
  if held_for_a_run('pins', tenant, digits) or (turn.awaits and awaited(tenant, digits)) then
    return true
  end
  return is_unarchived(tenant, turn.root, digits, turn.touched)
end

-- A turn loses a child, used last at `touched`; whether nothing needs it any more.
local function leave(tenant, digits, root, touched)
  local node = key('node', tenant, digits)
  local children, own, deleted = unpack(call('HMGET', node, 'children', 'touched', 'deleted'))
  if children ~= '1' then
    call('HINCRBY', node, 'children', '-1')
    return false
  end
  if tonumber(own) < tonumber(touched) then
    own = touched
  end
  call('HSET', node, 'children', '0', 'touched', own)
  if deleted then
    place_tombstone(tenant, digits, unpinned_from(key('pins', tenant, digits)))
  else
    place_leaf(tenant, digits, own)
  end
  call('SADD', key('tree', tenant, root), digits)
  return deleted and not held_for_a_run('pins', tenant, digits)
end

-- The fields of a turn that taking it away needs; no `root` where it is gone.
local function turn_of(tenant, digits)
  local root, parent, deleted, held, touched, log_bytes, children, awaits, said, shown = unpack(call('HMGET',
    key('node', tenant, digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits', 'said',
    'pictures'))
  return { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
    children = children, awaits = awaits, said = said, pictures = shown }
end

-- Take a leaf away with all that it has; its parent's digits, or '' of a root, and whether nothing needs that now.
local function remove(tenant, digits, turn)
  turn = turn or turn_of(tenant, digits)
  local node, root, parent = key('node', tenant, digits), turn.root, turn.parent
  local messages, response = key('messages', tenant, digits), key('response', tenant, digits)
  local pins, tree = key('pins', tenant, digits), key('tree', tenant, root)
  if not turn.is_displaced then
    displace_leaf(tenant, digits, turn.deleted)
  end
  if not turn.deleted and is_conversation(digits) then
    unlist(tenant, digits)
  end
  count(tenant, turn.deleted and 'tombstones' or 'responses', -1)
  count(tenant, 'bytes', -(turn.held or 0))
  if turn.log_bytes then
    drop_log(tenant, digits, turn.log_bytes)
  end
  if turn.said then
    unsay(tenant, digits, turn.said)
  end
  if turn.pictures then
    unshow(tenant, digits, turn.pictures, '')
  end
  call('UNLINK', node, messages, response, pins)
  if turn.deleted then -- only that has any, and most turns that go were not
    call('UNLINK', key('remains', tenant, digits))
  end
  if parent == '' then
    call('UNLINK', tree, key('runs', tenant, digits))
    displace_tree(tenant, digits)
    count(tenant, 'trees', -1)
    return '', false
  end
  local unneeded = leave(tenant, parent, root, turn.touched)
  call('SREM', tree, digits)
  return parent, unneeded
end

-- Take a leaf away, and the tombstones above it that nothing needs then; how many turns that were, at most `budget`.
local function take(tenant, digits, budget, turn)
  for taken = 1, budget do
    local parent, unneeded = remove(tenant, digits, turn)
    if not unneeded then
      return taken
    end
    digits, turn = parent, nil
  end
  return budget
end

-- A tombstone that nothing needs, as its tenant, its digits and what is known of it; nothing where there is none. What is
-- not in the place where it belongs any more, or never was, loses that place and nothing else.
local function unneeded_tombstone()
  for _ = 1, LOOKS do
    local member = call('ZRANGE', shard_key('tombstones'), '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1)[1]
    if not member then
      return nil
    end
    local tenant, digits = split(member)
    local turn = turn_of(tenant, digits)
    if turn.deleted and turn.children == '0' then
      return tenant, digits, turn
    end
    displace_leaf(tenant, digits, true)
  end
end
