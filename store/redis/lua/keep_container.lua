-- Keep what is known of a container, in the place of what was known.
--
-- Keys:      clock
-- Arguments: record   what is known of it
--            new      'yes' for one that may not be there yet
--            most     how many a tenant has at most
--            kept_ms  for how long they are kept after the last change
-- Result:    {'ok'} | {'missing'} where it is not new, and not there | {'full'}
-- Invariant: a tenant has no more than `most`, and what was deleted stays so. A retry is 'ok'.

local containers = shard_key('containers:' .. tenant)
if redis.call('HEXISTS', containers, digits) == 0 then
  if new ~= 'yes' then
    return { 'missing' }
  end
  if redis.call('HLEN', containers) >= most then
    return { 'full' }
  end
end
redis.call('HSET', containers, digits, record)
redis.call('PEXPIRE', containers, kept_ms)
return { 'ok' }
