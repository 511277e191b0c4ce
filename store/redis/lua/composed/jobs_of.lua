#!lua flags=allow-oom,no-writes
local leases = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local most = tonumber(ARGV[3])
local shard = string.sub(turns, 1, -#'t:' - 1)

local LEVELS = 4

local LOOKED_AT = 1000

local reply, all, seen = { 'ok', 1 }, 1, {}

local function tell(digits)
  if seen[digits] then
    return
  elseif #reply - 2 >= most then
    all = 0
    return
  end
  local parent, status, created, bytes = unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'parent', 'status', 'created',
    'response_bytes'))
  if status then
    seen[digits] = true
    parent = parent and parent ~= '' and parent or '-'
    reply[#reply + 1] = table.concat({ digits, parent, status, created or 0, bytes or 0 }, ' ')
  end
end

local held = redis.call('ZRANGE', leases, 0, LOOKED_AT - 1)
for _, member in ipairs(held) do
  local name, digits
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    name, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  if name == tenant then
    tell(digits)
  end
end
if #held == LOOKED_AT then
  all = 0
end
for level = 0, LEVELS - 1 do
  for _, digits in ipairs(redis.call('ZRANGE', ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or '')), 0, most)) do
    tell(digits)
  end
end
reply[2] = all
return reply
