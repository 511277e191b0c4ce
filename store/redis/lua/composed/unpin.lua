#!lua flags=allow-oom
local node = KEYS[1]; local pins = KEYS[2]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local pin = ARGV[4]
local PATH_TURNS = 32

local function walk(tenant, digits, depth)
  local found, last = { digits }, digits
  while depth > 1 do
    local above = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. last), (depth > PATH_TURNS and depth % PATH_TURNS == 1) and 'path' or 'parent')
    if not above then
      error('BROKEN the chain of ' .. digits .. ' has no turn ' .. last)
    end
    found[#found + 1] = above
    last = string.sub(above, -#digits)
    depth = depth - #above / #digits
  end
  return table.concat(found)
end
local CONVERSATION_MARK = '636f6e766572'


redis.call('ZREM', pins, pin)
local tip = (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) and redis.call('HGET', node, 'parent')
if tip then
  redis.call('ZREM', (turns .. tenant .. ':' .. 'pins' .. ':' .. tip), pin)
end
local turn = redis.call('HMGET', node, 'root', 'deleted', 'children', 'depth')
local root, deleted, children, depth = unpack(turn)
if root then
  redis.call('ZREM', (turns .. tenant .. ':' .. 'runs' .. ':' .. root), pin)
end
local path = ''
if deleted and children == '0' then
  path = walk(tenant, digits, tonumber(depth))
end
return { 'ok', path }
