--- include noting
-- Shared by the scripts that ask what an archive lacks (noting.lua), before they take it away or bring it back.
-- Invariant: what the archive lacks stays, unless it is away and may lack it.
--
-- `older` is there as long as not all trees from before the archive are noted: the score of the last use up to which they are.
-- `archive-away` is there as long as what the archive lacks may be evicted all the same: but no turn of which something was
-- erased, as the archive still has that.

-- Of a deletion, by its member of `changes`.
local function fence_of(tenant, member)
  return shard_key('fence:' .. tenant .. '/' .. member)
end

-- Whether nobody has noted yet what a tree had before there was an archive.
local function is_older(tenant, root)
  local noted = call('GET', shard_key('older'))
  return noted and tonumber(call('ZSCORE', shard_key('trees'), tenant .. '/' .. root) or 0) > tonumber(noted)
end

-- Whether what the archive lacks of a turn, or of a tree by its root, may be evicted. `erased` is the field that says that
-- something of it was.
local function may_lack(tenant, digits, erased)
  return call('EXISTS', shard_key('archive-away')) == 1 and call('HEXISTS', key('node', tenant, digits), erased) == 0
end

local AT_ONCE_US = 9000000000000000 -- taken from the µs of a last use: due before all that nobody waits for, in the order of uses

-- Have a tree archived before all that was used later, in µs; whether that will be soon. One that can't be archived as it is
-- was put off, and stays so.
local function archive_next(tenant, root, used)
  local member = tenant .. '/' .. root
  local due = tonumber(call('ZSCORE', shard_key('unarchived'), member) or 0)
  if due > now_us / 1000 + (archive_after() or 0) then
    return false
  end
  call('ZADD', shard_key('unarchived'), 'LT', exact(used - AT_ONCE_US), member)
  return true
end

-- Whether a turn that was used last then, in µs, has to stay, as the archive lacks it, and whether that won't be long.
local function is_unarchived(tenant, root, digits, touched)
  if not archive_after() then
    return false
  end
  local lacks = call('ZSCORE', changes_of(tenant, root), '+' .. digits)
  local older = not lacks and is_older(tenant, root)
  if not (lacks or older) or may_lack(tenant, digits, 'redactions') then
    return false
  end
  if older then
    note_unarchived(tenant, root, '+' .. digits, next_score(shard_key('clock')))
  end
  return true, archive_next(tenant, root, touched)
end

-- Whether the archive lacks something of a tree, and whether that won't be long.
local function is_unarchived_tree(tenant, root)
  if call('EXISTS', changes_of(tenant, root)) == 1 then
    return true, archive_next(tenant, root, call('ZSCORE', shard_key('trees'), tenant .. '/' .. root) or 0)
  end
  return is_older(tenant, root), true
end

-- Whether a tree has to stay for that, and whether that won't be long.
local function has_unarchived(tenant, root)
  local lacks, soon = is_unarchived_tree(tenant, root)
  return lacks and not may_lack(tenant, root, 'has_erased'), soon
end

-- Whether a turn, or its tree, was deleted, and an archive that was asked before may not have known it. For one that it has
-- as `deleted` by one of the words, whether there is more to that. Of most, one question tells that nothing is known.
local function was_deleted(tenant, root, digits, deleted)
  local noted, tree, erased, forgotten = changes_of(tenant, root), '*' .. root, 'x' .. digits, '-' .. digits
  if call('EXISTS', noted, fence_of(tenant, tree), fence_of(tenant, erased), fence_of(tenant, forgotten)) == 0 then
    return false
  end
  local function known(member)
    return call('EXISTS', fence_of(tenant, member)) == 1 or call('ZSCORE', noted, member)
  end
  return known(tree) or (deleted ~= 'x' and known(erased)) or (deleted == '' and known(forgotten))
end
