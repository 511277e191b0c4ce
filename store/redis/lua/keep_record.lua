-- Keep a record of a tenant's, in the place of the one before, and whether there is work to do for it.
--
-- Arguments: kind       the name of the tenant's records of this kind
--            record     what is known
--            before     what was known; empty for a new one
--            works      the name of the index of those for which there is work to do; empty where there is none
--            under_way  1 as long as there is work to do for it, else 0
--            most       how many a tenant has at most
--            most_open  for how many of them there is work to do at most
--            kept_ms    for how long they are kept after the last change of any, once there is no work to do
-- Result:    {'ok'} | {'missing'} where it is not new, and not there | {'moved'} where something else is known by now
--            | {'full'} | {'busy'} where there is work to do for so many
-- Invariant: a tenant has no more than `most`, there is work to do for no more than `most_open`, and no change is lost.
--            One with work to do is there, in `WORKS:TENANT`, and its tenant in `WORKS`. A retry is 'ok'.

local records = shard_key(kind .. ':' .. tenant)
local opened, tenants = shard_key(works .. ':' .. tenant), shard_key(works)
local known = call('HGET', records, digits)
if not known and before ~= '' then
  return { 'missing' }
elseif known and known ~= before and known ~= record then
  return { 'moved' }
elseif not known and call('HLEN', records) >= most then
  return { 'full' }
elseif not known and works ~= '' and call('SCARD', opened) >= most_open then
  return { 'busy' }
end
call('HSET', records, digits, record)
if under_way == '1' then
  call('SADD', opened, digits)
  call('SADD', tenants, tenant)
elseif works ~= '' then
  call('SREM', opened, digits)
  if call('EXISTS', opened) == 0 then
    call('SREM', tenants, tenant)
  end
end
if works ~= '' and call('EXISTS', opened) == 1 then
  call('PERSIST', records)
else
  call('PEXPIRE', records, kept_ms)
end
return { 'ok' }
