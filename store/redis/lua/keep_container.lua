-- Keep what is known of a container, in the place of what was known.
--
-- Arguments: record   what is known of it
--            before   what was known of it; empty for one that is new
--            most     how many a tenant has at most
--            kept_ms  for how long they are kept after the last change
-- Result:    {'ok'} | {'missing'} where it is not new, and not there | {'moved'} where something else is known by now
--            | {'full'}
-- Invariant: a tenant has no more than `most`, and no change is lost. A retry is 'ok'.

local containers = shard_key('containers:' .. tenant)
local known = redis.call('HGET', containers, digits)
if not known and before ~= '' then
  return { 'missing' }
elseif known and known ~= before and known ~= record then
  return { 'moved' }
elseif not known and redis.call('HLEN', containers) >= most then
  return { 'full' }
end
redis.call('HSET', containers, digits, record)
redis.call('PEXPIRE', containers, kept_ms)
return { 'ok' }
