-- Keep what is known of a batch, in the place of what was known, and whether it is under way.
--
-- Arguments: record     what is known of it
--            before     what was known of it; empty for one that is new
--            under_way  1 as long as there is work to do for it, else 0
--            most       how many a tenant has at most
--            most_open  how many of them are under way at most
--            kept_ms    for how long they are kept after the last change of any
-- Result:    {'ok'} | {'missing'} where it is not new, and not there | {'moved'} where something else is known by now
--            | {'full'} | {'busy'} where so many are under way
-- Invariant: a tenant has no more than `most`, no more than `most_open` are under way, and no change is lost. One that is
--            under way is in `batching:TENANT`, and its tenant in `batching`. A retry is 'ok'.

local batches, opened, tenants = shard_key('batches:' .. tenant), shard_key('batching:' .. tenant), shard_key('batching')
local known = redis.call('HGET', batches, digits)
if not known and before ~= '' then
  return { 'missing' }
elseif known and known ~= before and known ~= record then
  return { 'moved' }
elseif not known and redis.call('HLEN', batches) >= most then
  return { 'full' }
elseif not known and redis.call('SCARD', opened) >= most_open then
  return { 'busy' }
end
redis.call('HSET', batches, digits, record)
redis.call('PEXPIRE', batches, kept_ms)
if under_way == '1' then
  redis.call('SADD', opened, digits)
  redis.call('SADD', tenants, tenant)
else
  redis.call('SREM', opened, digits)
  if redis.call('EXISTS', opened) == 0 then
    redis.call('SREM', tenants, tenant)
  end
end
return { 'ok' }
