--- include queueing
-- A tenant's responses that are under way in a shard: those that run, and those that wait.
--
-- Keys:      leases
-- Arguments: tenant  whose they are
--            most    how many are told
-- Result:    {'ok', 1 if these are all and 0 if there may be more, for each its digits, its parent's or -, its status, when it
--            was made (µs), and the bytes of its response as it was accepted, with spaces between}
-- Invariant: nothing changes. A response is told once. What is looked at is bounded, so of very many leases some may be left out.

local LOOKED_AT = 1000 -- the most leases that one call looks at: those of all tenants are in one set

local reply, all, seen = { 'ok', 1 }, 1, {}

local function tell(digits)
  if seen[digits] then
    return
  elseif #reply - 2 >= most then
    all = 0
    return
  end
  local parent, status, created, bytes = unpack(redis.call('HMGET', key('node', tenant, digits), 'parent', 'status', 'created',
    'response_bytes'))
  if status then
    seen[digits] = true
    parent = parent and parent ~= '' and parent or '-'
    reply[#reply + 1] = table.concat({ digits, parent, status, created or 0, bytes or 0 }, ' ')
  end
end

local held = redis.call('ZRANGE', leases, 0, LOOKED_AT - 1)
for _, member in ipairs(held) do
  local name, digits = split(member)
  if name == tenant then
    tell(digits)
  end
end
if #held == LOOKED_AT then
  all = 0
end
for level = 0, LEVELS - 1 do
  for _, digits in ipairs(redis.call('ZRANGE', level_key('line', level, tenant), 0, most)) do
    tell(digits)
  end
end
reply[2] = all
return reply
