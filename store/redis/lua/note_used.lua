-- Note when keys were last used, those that there still are.
--
-- Arguments: used  the seconds of each, by its record's name; JSON
-- Result:    {'ok'}
-- Invariant: nothing is noted of what is not in the registry.

for name, seconds in pairs(cjson.decode(used)) do
  if call('HEXISTS', registry, name) == 1 then
    call('HSET', registry_used, name, string.format('%d', seconds))
  end
end
return { 'ok' }
