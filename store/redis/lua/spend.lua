--- include spending
-- Count what a response has spent that isn't stored.
--
-- Arguments: spent      what is counted of it (spending.lua)
--            marked_ms  for how long it is known that it was
-- Result:    {'ok'}
-- Invariant: a retry counts nothing. What was counted where the response was stored after all isn't counted again.

if call('HEXISTS', node, 'digest') == 0 and call('SET', shard_key('spent-by:' .. digits), '1', 'NX', 'PX', marked_ms) then
  spend(tenant, spent)
end
return { 'ok' }
