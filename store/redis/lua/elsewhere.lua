--- include unarchived
-- Shared by the scripts that delete: what only the archive has is deleted by a note for that, and doesn't come back for it.
--
-- Arguments: token             names this call, so that its retry after a lost reply is known
--            archived          the ms at which an archive was asked that has the turn, or '' where none was
--            fence_ms          for how long what the archive said then is taken for true
--            archived_root     the digits of the root of its tree, or '' where no archive was asked
--            archived_deleted  1 where it was deleted before, and others continue it; else 0

-- Note that the turn is deleted, or its tree, by a member of `changes` that says so: 'ok' | 'deleted' when it was before |
-- 'outdated' when it may have been, as nobody knows it any more, or the shard doesn't know that it has an archive.
local function note_gone(member)
  local fence = fence_of(tenant, member)
  if call('GET', fence) == token then
    return 'ok'
  elseif not archive_after() or now_us / 1000 > archived + fence_ms then
    return 'outdated'
  end
  local deleted = archived_deleted == '1' or was_deleted(tenant, archived_root, digits, '')
  if not deleted or member == 'x' .. digits then
    note_unarchived(tenant, archived_root, member, next_score(shard_key('clock')))
  end
  if not deleted then
    call('SET', fence, token, 'PX', fence_ms)
  end
  return deleted and 'deleted' or 'ok'
end
