-- Put right what all trees of a shard share, so that scripts can run on it at all.
--
-- Keys:      clock     the shard's clock
--            usage     the shard's usage
--            leaves    the shard's leaves
--            trees     the shard's trees
-- Arguments: turns     what all keys of turns in the shard begin with
--            names     members of the leaves or the trees that name no turn, in one string with a NUL behind each
--            counters  fields of the usage that are no numbers, with spaces between
--            roots     TENANT/ROOT of trees whose set may have such members, with spaces between
-- Result:    {'ok'}
-- Invariant: no turn changes; what names no turn is found again. A tree's set that has such a member goes whole, as the
--            leaves that lack their place in it are found and put right. The clock is then no older than the last use of
--            any turn, where that is not yet to come: such a use is put right with its turn.

local DIGITS = 48

for _, wanted in ipairs({ { clock, 'string' }, { usage, 'hash' }, { leaves, 'zset' }, { trees, 'zset' } }) do
  local kind = redis.call('TYPE', wanted[1]).ok
  if kind ~= 'none' and kind ~= wanted[2] then
    redis.call('UNLINK', wanted[1])
  end
end
for name in string.gmatch(names, '(%Z*)%z') do
  if not string.match(name, '^[^/]+/%x+$') or #string.match(name, '%x+$') ~= DIGITS then
    redis.call('ZREM', leaves, name)
    redis.call('ZREM', trees, name)
  end
end
for field in string.gmatch(counters, '[^ ]+') do
  if not string.match(redis.call('HGET', usage, field) or '0', '^%-?%d+$') then
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
local noted, now = redis.call('GET', clock) or '0', exact(now_us())
local last = string.match(noted, '^%d+$') and tonumber(noted) or 0
for _, uses in ipairs({ leaves, trees }) do
  local newest = redis.call('ZRANGE', uses, now, 0, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  last = math.max(last, tonumber(newest[2]) or 0)
end
if noted ~= exact(last) then
  redis.call('SET', clock, exact(last))
end
return { 'ok' }
