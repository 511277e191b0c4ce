--- include unarchived
-- The shard has no archive any more: nothing is noted from now on, and what was noted goes, some of it a call.
--
-- Arguments: budget  of how many trees the notes go
-- Result:    {'ok'} | {'again'} when there are more
-- Invariant: no turn changes. A tree may stay for what was noted of it until that is gone.

call('HDEL', shard_key('usage'), 'archive')
call('DEL', shard_key('older'), shard_key('archive-away'), shard_key('archive-failed'), shard_key('archive-head'))
for _, member in ipairs(call('ZRANGE', unarchived, 0, budget - 1)) do
  local tenant, root = split(member)
  call('UNLINK', changes_of(tenant, root))
  call('ZREM', unarchived, member)
end
local more = call('EXISTS', unarchived) == 1
return { more and 'again' or 'ok' }
