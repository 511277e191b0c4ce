--- include tree_jobs
-- A tenant's responses that are under way in a shard: those that run, and those that wait.
--
-- Arguments: tenant  whose they are
--            most    how many are told
-- Result:    {'ok', 1 if these are all and 0 if there may be more, for each what is shown of it}
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
  reply[#reply + 1] = shown(tenant, digits)
end

reply[2] = each_job(tenant, most + 1, tell) and all or 0
return reply
