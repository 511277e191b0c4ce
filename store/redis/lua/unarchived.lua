-- Shared by the scripts that change what an archive is to have of a tree.
-- Invariant: where the shard has an archive, each turn that has ended is there as it is here, or it is in the `changes` of
-- its tree, which is then among those of the shard. What was deleted is there too until the archive has that.
--
-- `archive` has the ms after which a changed tree is archived; without it nothing is noted. A member is a word and digits:
-- '+' for a turn as it is now, '-' for one that was deleted, 'x' for one whose messages were erased, '*' for the root of a
-- tree that was deleted. Its score is that of the change, which no other has: so who has archived what it was then can say so,
-- and a later change stays. The shard's are by the ms when they are due.
--
-- `older` is there as long as not all trees from before the archive are noted: the score of the last use up to which they are.
-- `archive-away` is there as long as what the archive lacks may be evicted all the same.

local function changes_of(tenant, root)
  return shard_key('changes:' .. tenant .. '/' .. root)
end

-- Of a turn, or by '*' and the digits of its root of a tree.
local function fence_of(tenant, member)
  return shard_key('fence:' .. tenant .. '/' .. member)
end

local function has_archive()
  return redis.call('EXISTS', shard_key('archive')) == 1
end

local function note_unarchived(tenant, root, member, score)
  local after = redis.call('GET', shard_key('archive'))
  if not after then
    return
  end
  local changes = changes_of(tenant, root)
  -- a tree that has changes is among those of the shard already: to ask for that costs half of saying it again
  if redis.call('ZADD', changes, score, member) == 1 and redis.call('ZCARD', changes) == 1 then
    redis.call('ZADD', shard_key('unarchived'), 'NX', exact(math.floor(now_us() / 1000) + after), tenant .. '/' .. root)
  end
end

-- Whether nobody has noted yet what a tree had before there was an archive.
local function is_older(tenant, root)
  local noted = redis.call('GET', shard_key('older'))
  return noted and tonumber(redis.call('ZSCORE', shard_key('trees'), tenant .. '/' .. root) or 0) > tonumber(noted)
end

local function may_lack()
  return redis.call('EXISTS', shard_key('archive-away')) == 1
end

local function archive_next(tenant, root)
  redis.call('ZADD', shard_key('unarchived'), 'XX', '0', tenant .. '/' .. root)
end

-- Whether a turn has to stay, as the archive lacks it; then its tree is next.
local function is_unarchived(tenant, root, digits)
  local lacks = redis.call('ZSCORE', changes_of(tenant, root), '+' .. digits)
  local older = not lacks and is_older(tenant, root)
  if not (lacks or older) or may_lack() then
    return false
  end
  if older then
    note_unarchived(tenant, root, '+' .. digits, next_score(shard_key('clock')))
  end
  archive_next(tenant, root)
  return true
end

-- Whether the archive lacks something of a tree; then that is next.
local function is_unarchived_tree(tenant, root)
  if redis.call('EXISTS', changes_of(tenant, root)) == 1 then
    archive_next(tenant, root)
    return true
  end
  return is_older(tenant, root)
end

-- Whether a tree has to stay for that.
local function has_unarchived(tenant, root)
  return is_unarchived_tree(tenant, root) and not may_lack()
end

-- Whether a turn, or its tree, was deleted, and an archive that was asked before may not have known it.
local function was_deleted(tenant, root, digits)
  if redis.call('EXISTS', fence_of(tenant, digits), fence_of(tenant, '*' .. root)) > 0 then
    return true
  end
  local noted = changes_of(tenant, root)
  return redis.call('ZSCORE', noted, '-' .. digits) or redis.call('ZSCORE', noted, 'x' .. digits)
    or redis.call('ZSCORE', noted, '*' .. root)
end
