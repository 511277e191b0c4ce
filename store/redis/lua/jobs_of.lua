--- include tree_jobs
-- A tenant's responses that are under way in a shard: those that run, and those that wait.
--
-- Keys:      leases
-- Arguments: tenant  whose they are
--            most    how many are told
-- Result:    {'ok', 1 if these are all and 0 if there may be more, for each its digits, its parent's or -, its status, when it
--            was made (µs), and the bytes of its response as it was accepted, with spaces between}
-- Invariant: nothing changes. A response is told once. What is looked at is bounded, so of very many leases some may be left out.

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

reply[2] = each_job(tenant, most + 1, tell) and all or 0
return reply
