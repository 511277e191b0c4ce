--- include outbox
-- A webhook that was taken was not accepted, and is due again after a while; or it was accepted, or given up, and waits no
-- longer.
--
-- Arguments: member    TENANT/DIGITS/STATUS
--            tries     how often it was tried when it was taken
--            delay_ms  when it is due again; 0 to drop it
-- Result:    {'ok'} | {'other'} when it is to be delayed, and is gone, or somebody else has taken it since
-- Invariant: only whoever took it last delays it. Whoever else is sending one that is dropped changes nothing by that.

if delay_ms == 0 then
  drop_webhooks(member)
elseif call('HGET', shard_key('outbox-tries'), member) == tries then
  call('ZADD', outbox, 'XX', now_ms + delay_ms, member)
else
  return { 'other' }
end
return { 'ok' }
