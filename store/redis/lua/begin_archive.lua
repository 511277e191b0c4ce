--- include clock
-- The shard has an archive from now on.
--
-- Arguments: after_ms  after how many ms a changed tree is archived
-- Result:    {'ok'}
-- Invariant: what changes is noted from the call on that first said so. What was there then is `older` (unarchived.lua), until
--            pass_older.lua has passed all of it. A retry, or another process, changes nothing of that.

if call('HSET', shard_key('usage'), 'archive', exact(after_ms)) == 1 and call('EXISTS', trees) == 1 then
  call('SET', shard_key('older'), '0')
end
return { 'ok' }
