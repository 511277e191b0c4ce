--- include judging
--- include repairing
-- Remove turns that can no longer be read: one that has lost its parent, its messages or what its node must say,
-- and all below it. No history is better than a history with a hole.
--
-- Arguments: top      TENANT/DIGITS of the faulty turn
--            members  TENANT/DIGITS of turns below it, children before their parents, and at the end of all calls
--                     the turn itself, with spaces between
-- Result:    {'ok'} | {'sound'} when the faulty turn is gone, or no longer faulty
-- Invariant: the fault is found again before anything is removed. Where the parent is there, it has one child less,
--            and is a leaf again when that was its last.

local UNREADABLE = { damaged = true, lineage = true, ['no-parent'] = true, ['no-messages'] = true }

local function at_fault()
  for tenant, digits in each_member(top) do
    local _, words = judge(tenant, digits, '', version)
    for _, word in ipairs(words) do
      if UNREADABLE[word] then
        return true
      end
    end
  end
  return false
end

local function leave_parent(tenant, parent)
  if not facts_of(tenant, parent).there.node then
    return
  end
  local above = fields_of(key('node', tenant, parent))
  if not above.children or not above.root or not above.touched then
    return
  end
  redis.call('HSET', key('node', tenant, parent), 'children', exact(math.max(0, above.children - 1)))
  if above.children <= 1 then
    replace({ tenant = tenant, digits = parent }, above.deleted, above.touched)
    place(tenant, above.root, parent)
  end
end

local function discard(tenant, digits)
  local turn = facts_of(tenant, digits)
  if not turn.there.node then
    return
  end
  local found = fields_of(turn.node)
  turn.fields = found
  if is_under_way(turn) then
    one_job_less(turn)
  end
  displace_job(turn)
  drop_log(tenant, digits, noted_bytes(turn))
  clear(turn)
  displace(tenant, found.root, digits)
  count(tenant, found.deleted and 'tombstones' or 'responses', -1)
  count(tenant, 'trees', found.parent == '' and -1 or 0)
  count(tenant, 'bytes', -(found.held or 0))
  if found.parent and found.parent ~= '' then
    leave_parent(tenant, found.parent)
  end
end

if not at_fault() then
  return { 'sound' }
end
for tenant, digits in each_member(members) do
  discard(tenant, digits)
end
record()
return { 'ok' }
