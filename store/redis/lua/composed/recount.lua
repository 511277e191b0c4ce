#!lua flags=allow-oom,no-writes
local node = KEYS[1]; local trees = KEYS[2]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local children = ARGV[4]; local since = tonumber(ARGV[5])

local root, counted = unpack(redis.call('HMGET', node, 'root', 'children'))
local found = 0
for child in string.gmatch(children, '%x+') do
  local below = (turns .. tenant .. ':' .. 'node' .. ':' .. child)
  if redis.call('TYPE', below).ok == 'hash' and redis.call('HGET', below, 'parent') == digits then
    found = found + 1
  end
end
if not root or tonumber(counted) == found then
  return { 'right' }
end
local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root)) or 0
if (tonumber(counted) or 0) > found and (used == 0 or used > since) then
  return { 'busy' }
end
return { 'wrong', counted or '-', (string.format('%.0f', found)) }
