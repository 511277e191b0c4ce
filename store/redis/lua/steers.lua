--- include queueing
-- What was said to a background response that is under way.
--
-- Keys:      job
-- Arguments: token  of who holds its lease
-- Result:    {'ok', an id, its bytes, …} in the order in which it came | {'lost'}
-- Invariant: nothing changes.

if not holds_lease(tenant, digits, token) then
  return { 'lost' }
end
local found = { 'ok' }
for id in string.gmatch(redis.call('HGET', job, 'steers') or '', '%S+') do
  found[#found + 1] = id
  found[#found + 1] = redis.call('HGET', job, 'said:' .. id)
end
return found
