-- Note when keys were last used, those that there still are.
--
-- Arguments: used  the seconds of each, by its record's name; JSON
-- Result:    {'ok'}
-- Invariant: nothing is noted of what is not in the registry.

for name, seconds in pairs(cjson.decode(used)) do
  if redis.call('HEXISTS', registry, name) == 1 then
    redis.call('HSET', registry_used, name, string.format('%.0f', seconds))
  end
end
return { 'ok' }
