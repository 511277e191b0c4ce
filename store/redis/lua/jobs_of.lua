--- include tree_jobs
-- A tenant's responses that are under way in a shard: those that run, and those that wait.
--
-- Arguments: tenant  whose they are
--            most    how many are told
-- Result:    {'ok', 1 if these are all and 0 if there may be more, for each the level of its priority and what is shown of it,
--            with a space between}
-- Invariant: nothing changes. A response is told once. What is looked at is bounded, so of very many leases some may be left out.

local reply, all, seen = { 'ok', 1 }, 1, {}

local function tell(digits)
  if seen[digits] then
    return
  elseif #reply - 2 >= most then
    all = 0
    return
  end
  seen[digits] = true
  local turn = shown(tenant, digits)
  reply[#reply + 1] = turn and (call('HGET', key('job', tenant, digits), 'own') or '0') .. ' ' .. turn
end

reply[2] = each_job(tenant, most + 1, tell) and all or 0
return reply
