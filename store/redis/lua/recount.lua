--- include clock
-- Whether a turn has as many children as it counts, while the shard may be in use.
--
-- Keys:      node, trees
-- Arguments: children  the digits of all its children that were there at some moment, with spaces between
--            since     the shard's clock before they were counted
-- Result:    {'right'} | {'wrong', how many it counts, how many there are} | {'busy'} when it counts more than are known
--            and its tree was used since, so that there may be others
-- Invariant: nothing changes. A tree that was not used since `since` has got no child since.

local root, counted = unpack(redis.call('HMGET', node, 'root', 'children'))
local found = 0
for child in string.gmatch(children, '%x+') do
  local below = key('node', tenant, child)
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
return { 'wrong', counted or '-', exact(found) }
