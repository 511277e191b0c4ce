-- The secret that all who share the store have in common: the one that is there, or else the one that the caller made.
--
-- Arguments: made  random bytes, as many as a secret has
-- Result:    {'ok', secret}
--            {'damaged', value}: what is there has another length
-- Invariant: what is there stays.

call('SET', secret, made, 'NX')
local found = call('GET', secret)
if #found ~= #made then
  return { 'damaged', found }
end
return { 'ok', found }
