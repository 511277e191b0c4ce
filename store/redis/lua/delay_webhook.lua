--- include pins
-- A webhook was not accepted: it is due again after a while.
--
-- Keys:      outbox
-- Arguments: member    TENANT/DIGITS/STATUS
--            tries     how often it was tried when it was taken
--            delay_ms  when it is due again
-- Result:    {'ok'} | {'other'} when it is gone, or somebody else has taken it since
-- Invariant: only whoever took it last delays it.

if redis.call('HGET', shard_key('outbox-tries'), member) ~= tries then
  return { 'other' }
end
redis.call('ZADD', outbox, 'XX', now_ms + delay_ms, member)
return { 'ok' }
