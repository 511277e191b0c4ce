--- include facts
-- Repair what all trees of a shard share, so that scripts can run on it at all.
--
-- Arguments: kinds     NAME=TYPE of keys, which go where they hold another type of value, with spaces between
--            places    names of keys that have members which name no turn, with spaces between
--            names     those members, in one string with a NUL behind each
--            notes     names of what calls left for their retries and never expires, with spaces between
--            counters  fields of the usage that are no numbers, with spaces between
--            roots     TENANT/ROOT of trees whose set may have such members, with spaces between
-- Result:    {'ok'}
-- Invariant: no turn changes; what names no turn is found again. A tree's set that has such a member goes whole, as the
--            leaves that lack their place in it are found and repaired. The clock is then no older than the last use of
--            any turn, where that is not yet to come: such a use is repaired with its turn.

local SECRET_BYTES = 32
local OWN = { line = true, leaves = true, conversations = true, trees = true } -- what keys of a tenant's own begin with

-- Whether a member names a turn: by its digits alone in what is a tenant's.
local function names_a_turn(member, place)
  local own = OWN[string.match(place, '^(%l+):') or '']
  local digits = own and member or string.match(member, '^[^/]+/(%x+)$')
  return digits and #digits == DIGITS and not string.match(digits, '%X')
end

for name, kind in string.gmatch(kinds, '(%S+)=(%l+)') do
  if not is(kind, shard_key(name)) then
    redis.call('UNLINK', shard_key(name))
  end
end
for place in string.gmatch(places, '%S+') do
  for member in string.gmatch(names, '(%Z*)%z') do
    if not names_a_turn(member, place) then
      redis.call('ZREM', shard_key(place), member)
    end
  end
end
for name in string.gmatch(notes, '[^ ]+') do
  if redis.call('PTTL', shard_key(name)) == -1 then
    redis.call('UNLINK', shard_key(name))
  end
end
if not integer(redis.call('GET', shard_key('logged'))) then
  redis.call('DEL', shard_key('logged'))
end
local secret = redis.call('GET', shard_key('secret'))
if secret and #secret ~= SECRET_BYTES then
  redis.call('UNLINK', shard_key('secret'))
end
for field in string.gmatch(counters, '[^ ]+') do
  if not integer(redis.call('HGET', usage, field)) then
    redis.call('HDEL', usage, field)
  end
end
for tenant, root in string.gmatch(roots, '([^/ ]+)/(%x+)') do
  for _, digits in ipairs(redis.call('SMEMBERS', key('tree', tenant, root))) do
    if #digits ~= DIGITS or string.match(digits, '%X') then
      redis.call('UNLINK', key('tree', tenant, root))
    end
  end
end
local noted, now = redis.call('GET', clock) or '0', exact(now_us)
local last = string.match(noted, '^%d+$') and tonumber(noted) or 0
local newest = redis.call('ZRANGE', trees, now, 0, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
last = math.max(last, tonumber(newest[2]) or 0)
if noted ~= exact(last) then
  redis.call('SET', clock, exact(last))
end
return { 'ok' }
