--- include orders
--- include tree_jobs
--- include walk
-- What some of a tenant's trees come to.
--
-- Arguments: tenant  whose they are
--            roots   the digits of their roots, with spaces between
--            most    how many turns may be looked at
-- Result:    {'ok', for each tree, in order, as many as were looked at and at least one: its last use, when its root
--            was made (µs), how many turns it has, 1 if these are all and 0 if there may be more, the digits of its newest turn
--            without a child, those of the conversation that stands at it or -, how many turns of the tree are under way, and of
--            the newest one its status, when it was made (µs), and the bytes of its response; the bytes of the root's; and of a tree that begins with what
--            somebody added by hand, the digits of the turn behind that and the bytes of its response, else - and 0; with
--            spaces between; or '' where it is gone}
-- Invariant: nothing changes, not even the order of use. The newest turn is the one used last of those without children and of
--            those under way; of more than MOST_COMPARED without children it is one of so many.

local MOST_COMPARED = 100
local BY_HAND_MARK = '627968616e64' -- store/keys.py

local left = most

-- How many turns a tree has, of which one may be a conversation that stands in it, and whether these are all. A
-- continued turn is no conversation.
local function turns_of(tenant, root, tips)
  if #tips == 1 then
    return tonumber(call('HGET', key('node', tenant, tips[1]), 'depth') or 0) - (is_conversation(tips[1]) and 1 or 0), true
  end
  local nodes, seen, number = key('node', tenant, ''), {}, 0
  for _, digits in ipairs(tips) do
    if left > 0 and is_conversation(digits) then
      number = number - 1
    end
    while digits and digits ~= '' and not seen[digits] do
      if left <= 0 then
        return number, false
      end
      left = left - 1
      seen[digits] = true
      number = number + 1
      digits = call('HGET', nodes .. digits, 'parent')
    end
  end
  return number, true
end

-- Of some turns the one that was used last.
local function used_last(tenant, tips)
  local newest, found = -1, nil
  for at = 1, math.min(#tips, MOST_COMPARED) do
    local used = tonumber(call('HGET', key('node', tenant, tips[at]), 'touched') or 0)
    if used > newest then
      newest, found = used, tips[at]
    end
  end
  return found
end

-- The leaf of a tree that was used last: nearly always no other of the tenant's has that score.
local function newest_of(tenant, root, used, tips)
  local found = call('ZRANGE', leaves_of(tenant), used, used, 'BYSCORE', 'LIMIT', 0, 1)[1]
  if found and call('SISMEMBER', key('tree', tenant, root), found) == 1 then
    return found
  end
  return used_last(tenant, tips) or root
end

-- Where the conversation begins that leads to a turn: the bytes of the root's response, and what follows a root by hand.
local function opening(root, newest)
  local bytes, first = call('HGET', key('node', tenant, root), 'response_bytes') or 0, '-'
  local depth = tonumber(call('HGET', key('node', tenant, newest), 'depth') or 0)
  if string.sub(root, 3, 2 + #BY_HAND_MARK) ~= BY_HAND_MARK or depth < 2 then
    return bytes, first, 0
  end
  local unbroken, ids = pcall(walk, tenant, newest, depth)
  if not unbroken then
    return bytes, first, 0 -- fsck tells of it
  end
  first = string.sub(ids, -2 * #root, -#root - 1)
  return bytes, first, call('HGET', key('node', tenant, first), 'response_bytes') or 0
end

local function summed_up(root)
  local used = call('ZSCORE', trees, tenant .. '/' .. root)
  if not used or used == '0' then
    return '', true
  end
  local set, jobs = key('tree', tenant, root), under_way_in(tenant, root)
  local wanted = math.max(left, MOST_COMPARED)
  local whole = call('SCARD', set) <= wanted
  local tips = whole and call('SMEMBERS', set) or call('SRANDMEMBER', set, wanted)
  for _, digits in ipairs(jobs) do
    table.insert(tips, 1, digits)
  end
  left = left - #tips
  local number, all = turns_of(tenant, root, tips)
  local newest, named = newest_of(tenant, root, used, tips), '-'
  if is_conversation(newest) then
    named, newest = newest, call('HGET', key('node', tenant, newest), 'parent') or root
  end
  whole = whole and all
  local status, created, bytes, deleted = unpack(call('HMGET', key('node', tenant, newest), 'status', 'created',
    'response_bytes', 'deleted'))
  status = deleted and 'deleted' or status or '-'
  local begun = call('HGET', key('node', tenant, root), 'created') or 0
  return table.concat({ used, begun, number, whole and 1 or 0, newest, named, #jobs, status, created or 0, bytes or 0,
    opening(root, newest) }, ' '), whole
end

local reply = { 'ok' }
for root in string.gmatch(roots, '%x+') do
  local row, all = summed_up(root)
  if #reply > 1 and not all then
    break -- with all that one call may look at it may be told whole
  end
  reply[#reply + 1] = row
end
return reply
