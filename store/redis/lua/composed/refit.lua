#!lua flags=allow-oom
local clock = KEYS[1]; local usage = KEYS[2]; local leaves = KEYS[3]; local trees = KEYS[4]; local turns = ARGV[1]; local kinds = ARGV[2]; local places = ARGV[3]; local names = ARGV[4]; local notes = ARGV[5]; local counters = ARGV[6]; local roots = ARGV[7]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local DIGITS = 48
local function integer(value)
  local counts = value and #value < 18 and (value == '0' or string.match(value, '^%-?[1-9]%d*$'))
  return counts and tonumber(value) or nil
end


local SECRET_BYTES = 32
local OWN = { line = true, leaves = true, conversations = true, trees = true }

local function names_a_turn(member, place)
  local own = OWN[string.match(place, '^(%l+):') or '']
  local digits = own and member or string.match(member, '^[^/]+/(%x+)$')
  return digits and #digits == DIGITS and not string.match(digits, '%X')
end

for name, kind in string.gmatch(kinds, '(%S+)=(%l+)') do
  if not (redis.call('TYPE', ((shard .. name))).ok == kind) then
    redis.call('UNLINK', (shard .. name))
  end
end
for place in string.gmatch(places, '%S+') do
  for member in string.gmatch(names, '(%Z*)%z') do
    if not names_a_turn(member, place) then
      redis.call('ZREM', (shard .. place), member)
    end
  end
end
for name in string.gmatch(notes, '[^ ]+') do
  if redis.call('PTTL', (shard .. name)) == -1 then
    redis.call('UNLINK', (shard .. name))
  end
end
if not integer(redis.call('GET', (shard .. 'logged'))) then
  redis.call('DEL', (shard .. 'logged'))
end
local secret = redis.call('GET', (shard .. 'secret'))
if secret and #secret ~= SECRET_BYTES then
  redis.call('UNLINK', (shard .. 'secret'))
end
for field in string.gmatch(counters, '[^ ]+') do
  if not integer(redis.call('HGET', usage, field)) then
    redis.call('HDEL', usage, field)
  end
end
for tenant, root in string.gmatch(roots, '([^/ ]+)/(%x+)') do
  for _, digits in ipairs(redis.call('SMEMBERS', (turns .. tenant .. ':' .. 'tree' .. ':' .. root))) do
    if #digits ~= DIGITS or string.match(digits, '%X') then
      redis.call('UNLINK', (turns .. tenant .. ':' .. 'tree' .. ':' .. root))
    end
  end
end
local noted, now = redis.call('GET', clock) or '0', (string.format('%.0f', now_us))
local last = string.match(noted, '^%d+$') and tonumber(noted) or 0
for _, uses in ipairs({ leaves, trees }) do
  local newest = redis.call('ZRANGE', uses, now, 0, 'BYSCORE', 'REV', 'LIMIT', 0, 1, 'WITHSCORES')
  last = math.max(last, tonumber(newest[2]) or 0)
end
if noted ~= (string.format('%.0f', last)) then
  redis.call('SET', clock, (string.format('%.0f', last)))
end
return { 'ok' }
