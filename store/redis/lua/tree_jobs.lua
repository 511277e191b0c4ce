--- include queueing
-- Shared by the scripts that show turns, or what a tenant has under way.
-- Invariant: nothing changes. A response under way waits in a line of its tenant or has a lease. What is looked at of either
-- is bounded, so of very many some may be left out.

local LOOKED_AT = 1000 -- the most places of a line, and the most leases, that one call looks at: a millisecond or two

local SHOWN = { 'parent', 'depth', 'status', 'created', 'touched', 'children', 'response_bytes', 'deleted' }

-- What is shown of a turn: its digits, its parent's or -, its depth, its status, when it was made and used last (µs), how many
-- children it has, the bytes of its response, and D if it was deleted, else -, with spaces between; and its parent's digits.
-- Nothing of one that isn't there.
local function shown(tenant, digits)
  local found, last = call('HMGET', key('node', tenant, digits), unpack(SHOWN)), #SHOWN
  local parent = found[1]
  if not parent then
    return nil
  end
  found[1] = parent == '' and '-' or parent
  for at = 2, last - 1 do
    found[at] = found[at] or '0'
  end
  found[last] = found[last] and 'D' or '-'
  return digits .. ' ' .. table.concat(found, ' '), parent
end

-- Call `note` with the digits of a tenant's jobs: those that run, and at each level at most so many of those that wait.
-- Whether all leases, which those of all tenants are among, were looked at.
local function each_job(tenant, most, note)
  local held = call('ZRANGE', shard_key('leases'), 0, LOOKED_AT - 1)
  for _, member in ipairs(held) do
    local name, digits = split(member)
    if name == tenant then
      note(digits)
    end
  end
  for level = 0, LEVELS - 1 do
    for _, digits in ipairs(call('ZRANGE', level_key('line', level, tenant), 0, most - 1)) do
      note(digits)
    end
  end
  return #held < LOOKED_AT
end

local under_way_by_root

local function begin_tree_jobs()
  under_way_by_root = nil
end

-- The digits of what is under way in a tree.
local function under_way_in(tenant, root)
  if call('HEXISTS', key('node', tenant, root), 'jobs') == 0 then
    return {}
  elseif under_way_by_root then
    return under_way_by_root[root] or {}
  end
  under_way_by_root = {}
  each_job(tenant, LOOKED_AT, function(digits)
    local found = call('HGET', key('node', tenant, digits), 'root')
    if found then
      under_way_by_root[found] = under_way_by_root[found] or {}
      table.insert(under_way_by_root[found], digits)
    end
  end)
  return under_way_by_root[root] or {}
end
