-- Repair what all trees of a shard share, so that scripts can run on it at all.
--
-- Keys:      clock, usage, leaves, trees
-- Arguments: names     members of the leaves, the trees, the leases, the logs, the queues or the lines that name no turn,
--                      in one string with a NUL behind each
--            lines     LEVEL:TENANT of lines that have such members, or are of another type, with spaces between
--            notes     names of what calls left for their retries and never expires, with spaces between
--            counters  fields of the usage that are no numbers, with spaces between
--            roots     TENANT/ROOT of trees whose set may have such members, with spaces between
-- Result:    {'ok'}
-- Invariant: no turn changes; what names no turn is found again. A tree's set that has such a member goes whole, as the
--            leaves that lack their place in it are found and repaired. The clock is then no older than the last use of
--            any turn, where that is not yet to come: such a use is repaired with its turn.

local DIGITS = 48
local SECRET_BYTES = 32

local KINDS = { clock = 'string', usage = 'hash', leaves = 'zset', trees = 'zset', leases = 'zset', logs = 'zset',
  logged = 'string', secret = 'string', outbox = 'zset', ['outbox-ages'] = 'zset', ['outbox-tries'] = 'hash' }
local PLACES = { 'leaves', 'trees', 'leases', 'logs' }
for level = 0, LEVELS - 1 do
  KINDS['queued:' .. level], KINDS['turn:' .. level] = 'zset', 'zset'
  PLACES[#PLACES + 1] = 'queued:' .. level
end

local function retype(name, wanted)
  local kind = redis.call('TYPE', name).ok
  if kind ~= 'none' and kind ~= wanted then
    redis.call('UNLINK', name)
  end
end

local function is_number(value)
  return not value or value == '0' or (#value < 18 and string.match(value, '^%-?[1-9]%d*$'))
end

for name, kind in pairs(KINDS) do
  retype(shard_key(name), kind)
end
for line in string.gmatch(lines, '[^ ]+') do
  retype(shard_key('line:' .. line), 'zset')
end
for name in string.gmatch(names, '(%Z*)%z') do
  if not string.match(name, '^[^/]+/%x+$') or #string.match(name, '%x+$') ~= DIGITS then
    for _, place in ipairs(PLACES) do
      redis.call('ZREM', shard_key(place), name)
    end
  end
  if #name ~= DIGITS or string.match(name, '%X') then
    for line in string.gmatch(lines, '[^ ]+') do
      redis.call('ZREM', shard_key('line:' .. line), name)
    end
  end
end
for name in string.gmatch(notes, '[^ ]+') do
  if redis.call('PTTL', shard_key(name)) == -1 then
    redis.call('UNLINK', shard_key(name))
  end
end
if not is_number(redis.call('GET', shard_key('logged'))) then
  redis.call('DEL', shard_key('logged'))
end
local secret = redis.call('GET', shard_key('secret'))
if secret and #secret ~= SECRET_BYTES then
  redis.call('UNLINK', shard_key('secret'))
end
for field in string.gmatch(counters, '[^ ]+') do
  if not is_number(redis.call('HGET', usage, field)) then
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
