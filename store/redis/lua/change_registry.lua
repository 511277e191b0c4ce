--- include auditing
-- Change records and lists of the registry if all records are what the caller made the change of, with entries in the
-- audit log.
--
-- Keys:      registry, registry_used, audit_entries, audit_shares, registry_news
-- Arguments: changes       NAME, BEFORE and AFTER of each record, empty where there is none; JSON
--            places        LIST, NAME and MOST of each name in a list: added if that has fewer than MOST, or taken out if
--                          MOST is 0; JSON
--            mark          what only this call has
--            entries       what the audit log is given, in its order; JSON
--            share         whose share of the log they are of
--            most_entries  how many entries administrators have there, and all others together
--            tell          what those are told who listen; '' for nothing
-- Result:    {'ok'} | {'moved', name} of a record that isn't BEFORE | {'full', list}
-- Invariant: all happens, or nothing. A retry changes nothing, and is 'ok', also behind some changes of others.

local REMEMBERED = 64 -- the marks of so many changes are known, of which all are as long as this one's

local made = redis.call('HGET', registry, 'last') or ''
if string.find(made, mark, 1, true) then
  return { 'ok' }
end
changes, places = cjson.decode(changes), cjson.decode(places)
for _, change in ipairs(changes) do
  if (redis.call('HGET', registry, change[1]) or '') ~= change[2] then
    return { 'moved', change[1] }
  end
end
for _, place in ipairs(places) do
  local list = shard_key('registry:' .. place[1])
  if place[3] > 0 and not redis.call('ZSCORE', list, place[2]) and redis.call('ZCARD', list) >= place[3] then
    return { 'full', place[1] }
  end
end
redis.call('HSET', registry, 'last', mark .. string.sub(made, 1, (REMEMBERED - 1) * #mark))
for _, change in ipairs(changes) do
  if change[3] == '' then
    redis.call('HDEL', registry, change[1])
    redis.call('HDEL', registry_used, change[1])
  else
    redis.call('HSET', registry, change[1], change[3])
  end
end
for _, place in ipairs(places) do
  local list = shard_key('registry:' .. place[1])
  if place[3] > 0 then
    redis.call('ZADD', list, 'NX', redis.call('HINCRBY', registry, 'count', 1), place[2])
  else
    redis.call('ZREM', list, place[2])
  end
end
for _, entry in ipairs(cjson.decode(entries)) do
  note_in_log(entry, share, most_entries)
end
if tell ~= '' then
  redis.call('SPUBLISH', registry_news, tell)
end
return { 'ok' }
