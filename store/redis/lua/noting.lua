--- include clock
--- include usage
-- Shared by the scripts that change what an archive is to have of a tree.
-- Invariant: where the shard has an archive, each turn that has ended is there as it is here, or it is in the `changes` of
-- its tree, which is then among those of the shard. What was deleted is there too until the archive has that.
--
-- The field `archive` of `usage` has the ms after which a changed tree is archived; without it nothing is noted. A member is a word and digits:
-- '+' for a turn as it is now, '-' for one that was deleted, 'x' for one whose messages were erased, '*' for the root of a
-- tree that was deleted. Its score is that of the change, which no other has: so who has archived what it was then can say so,
-- and a later change stays. The shard's are by the ms when they are due, or below 0 where room is needed.

local function changes_of(tenant, root)
  return shard_key('changes:' .. tenant .. '/' .. root)
end

-- A tree that has changes waits to be archived, if it doesn't yet.
local function queue(tenant, root)
  local due = exact(math.floor(now_us / 1000) + (archive_after() or 0))
  call('ZADD', shard_key('unarchived'), 'NX', due, tenant .. '/' .. root)
end

local function note_unarchived(tenant, root, member, score)
  -- a tree that has changes is among those of the shard already: to ask for that costs half of saying it again
  if archive_after() and call('ZADD', changes_of(tenant, root), score, member) == 1 and call('ZCARD', changes_of(tenant, root)) == 1 then
    queue(tenant, root)
  end
end
