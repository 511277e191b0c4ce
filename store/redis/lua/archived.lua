--- include unarchived
-- Some of what a tree had unarchived is archived as it was then.
--
-- Arguments: done      MEMBER=SCORE of each, with spaces between
--            fence_ms  for how long nobody brings back what was deleted
-- Result:    {'ok', how many are left}
-- Invariant: what has changed since stays unarchived, and its tree is due again after a while. A retry changes nothing.

local own = changes_of(tenant, digits)
for member, score in string.gmatch(done, '(%S+)=(%S+)') do
  if redis.call('ZSCORE', own, member) == score then
    redis.call('ZREM', own, member)
    local fence = fence_of(tenant, member)
    if string.sub(member, 1, 1) ~= '+' and redis.call('PEXPIRE', fence, fence_ms) == 0 then
      redis.call('SET', fence, '', 'PX', fence_ms)
    end
  end
end
local left = redis.call('ZCARD', own)
redis.call('HDEL', shard_key('archive-failed'), tenant .. '/' .. digits)
if left == 0 then
  redis.call('ZREM', shard_key('unarchived'), tenant .. '/' .. digits)
else
  local after = redis.call('GET', shard_key('archive')) or 0
  redis.call('ZADD', shard_key('unarchived'), exact(math.floor(now_us / 1000) + after), tenant .. '/' .. digits)
end
return { 'ok', left }
