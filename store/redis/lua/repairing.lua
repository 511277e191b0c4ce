--- include facts
--- include judging
--- include pins
--- include places
-- Shared by the scripts that repair: which keys they may use, and the places of a turn.
-- Invariant: nothing is done with a turn one of whose places is a key of another type: that goes, and the turn is repaired in
-- the next round.

-- Whether all keys in which a turn may have a place can be used.
local function has_places(turn)
  local kinds = { [leaves_of(turn.tenant)] = 'zset', [trees_of(turn.tenant)] = 'zset', [list_of(turn.tenant)] = 'zset',
    [entry_of(turn.tenant, '')] = 'hash' }
  if turn.fields and turn.fields.root then
    kinds[key('tree', turn.tenant, turn.fields.root)] = 'set'
  end
  for level = 0, LEVELS - 1 do
    kinds[level_key('line', level, turn.tenant)] = 'zset'
  end
  for name, kind in pairs(kinds) do
    if not is(kind, name) and not is('none', name) then
      return false
    end
  end
  return true
end

-- Take a turn from among the leaves and the tombstones, and from those of its tree.
local function unplace(turn)
  displace_leaf(turn.tenant, turn.digits, true)
  displace_leaf(turn.tenant, turn.digits, false)
  if turn.fields and turn.fields.root then
    call('SREM', key('tree', turn.tenant, turn.fields.root), turn.digits)
  end
end

local function displace_job(turn)
  for level = 0, LEVELS - 1 do
    call('ZREM', level_key('queued', level), turn.member)
    call('ZREM', level_key('accepted', level), turn.member)
    call('ZREM', level_key('line', level, turn.tenant), turn.digits)
  end
  call('ZREM', shard_key('leases'), turn.member)
end

-- Take all keys of a turn away, and all its places but those of a job.
local function clear(turn)
  if turn.fields and turn.fields.said then
    unsay(turn.tenant, turn.digits, turn.fields.said)
  end
  if turn.fields and turn.fields.pictures then
    unshow(turn.tenant, turn.digits, turn.fields.pictures, '')
  end
  for _, family in ipairs(KINDS) do
    call('UNLINK', key(family[1], turn.tenant, turn.digits))
  end
  unplace(turn)
  unlist(turn.tenant, turn.digits)
  displace_tree(turn.tenant, turn.digits)
end
