--- include unarchived
-- Some of what a tree had unarchived is archived as it was then.
--
-- Arguments: done      MEMBER=SCORE of each, with spaces between
--            fence_ms  for how long nobody brings back what was deleted
-- Result:    {'ok', how many are left}
-- Invariant: what has changed since stays unarchived, and its tree is due again after a while. A retry changes nothing.

local own = changes_of(tenant, digits)
for member, score in string.gmatch(done, '(%S+)=(%S+)') do
  if call('ZSCORE', own, member) == score then
    call('ZREM', own, member)
    local fence = fence_of(tenant, member)
    if string.sub(member, 1, 1) ~= '+' and call('PEXPIRE', fence, fence_ms) == 0 then
      call('SET', fence, '', 'PX', fence_ms)
    end
  end
end
local left = call('ZCARD', own)
call('HDEL', shard_key('archive-failed'), tenant .. '/' .. digits)
if left == 0 then
  call('ZREM', shard_key('unarchived'), tenant .. '/' .. digits)
else
  call('ZADD', shard_key('unarchived'), exact(math.floor(now_us / 1000) + (archive_after() or 0)), tenant .. '/' .. digits)
end
return { 'ok', left }
