-- Some names of a list of the registry, in the order in which they were added.
--
-- Keys:      registry
-- Arguments: name       which one
--            after      the name behind which they begin; '' for the first
--            most       how many at most
--            ascending  1 for the oldest first, else 0
-- Result:    {'ok', names...} | {'missing'} where the list has no `after`
-- Invariant: nothing changes.

local place = shard_key('registry:' .. name)
local from = ascending == 1 and '-inf' or '+inf'
if after ~= '' then
  local score = redis.call('ZSCORE', place, after)
  if not score then
    return { 'missing' }
  end
  from = '(' .. score
end
local names
if ascending == 1 then
  names = redis.call('ZRANGE', place, from, '+inf', 'BYSCORE', 'LIMIT', 0, most)
else
  names = redis.call('ZRANGE', place, from, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, most)
end
return { 'ok', unpack(names) }
