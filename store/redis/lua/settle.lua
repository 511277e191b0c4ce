--- include said
-- Store what an inspection of the whole shard has counted, if nothing has changed in it since.
--
-- Arguments: since     the clock and the four counters of the shard at that time, as `moment` gives them
--            nodes     TENANT/DIGITS/FIELD=NUMBER of turns: how many `children` they have, and how many `jobs` are in
--                      the tree of which they are the root, where 0 takes the number away; and TENANT/HEX/turns=NUMBER of
--                      how many show a picture, where 0 takes it away; and TENANT/FIELD/said=NUMBER of how many have the
--                      words for which a field of the index is, where 0 takes it away; with spaces between
--            events    NOTED=NUMBER of bytes of events, or ''; noted only if they are still those
--            counters  FIELD=NUMBER of counters, or FIELD/TENANT=NUMBER, with spaces between; 0 takes one away
-- Result:    {'ok'} | {'changed'} when something has, so that nothing was noted
-- Invariant: each change of what is stored changes the clock or a counter of the shard; counters of the shard are
--            therefore noted by the last of several calls.

local counted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')
local moment = redis.call('GET', clock) or '-'
for at = 1, 4 do
  moment = moment .. ' ' .. (counted[at] or '-')
end
if moment ~= since then
  return { 'changed' }
end
for tenant, digits, field, number in string.gmatch(nodes, '([^/ ]+)/(%x+)/(%l+)=(%d+)') do
  local node = key('node', tenant, digits)
  local picture, index = key('picture', tenant, digits), entry_of(tenant, '')
  if field == 'said' and number ~= '0' then
    redis.call('HSET', index, bytes_of(digits), '#' .. number)
  elseif field == 'said' then
    redis.call('HDEL', index, bytes_of(digits))
  elseif field == 'turns' and number ~= '0' and redis.call('TYPE', picture).ok == 'hash' then
    redis.call('HSET', picture, field, number)
  elseif field == 'turns' then
    redis.call('UNLINK', picture)
  elseif field == 'jobs' and number == '0' then
    redis.call('HDEL', node, field)
  elseif redis.call('EXISTS', node) == 1 then
    redis.call('HSET', node, field, number)
  end
end
local noted, number = string.match(events, '^(.*)=(%d+)$')
if noted and (redis.call('GET', logged) or '0') == noted then
  redis.call('SET', logged, number)
end
for field, number in string.gmatch(counters, '([^= ]+)=(%d+)') do
  local name, tenant = string.match(field, '^(%l+)/(.+)$')
  if tenant then
    redis.call('ZADD', usage .. ':' .. name, number, tenant)
    redis.call('ZREMRANGEBYSCORE', usage .. ':' .. name, 0, 0)
  elseif number == '0' then
    redis.call('HDEL', usage, field)
  else
    redis.call('HSET', usage, field, number)
  end
end
return { 'ok' }
