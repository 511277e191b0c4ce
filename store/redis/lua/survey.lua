--- include describing
-- For a backup: all turns of some trees, each tree as it is at this moment.
--
-- Arguments: members  TENANT/ROOT of the trees, with spaces between
--            most     how many turns may be looked at
-- Result:    {'ok', for each of the trees one reply: a line with a word, the tree's last use and how many jobs it has, and for
--            'whole' a line for each turn, each after the one that it continues, as describing.lua has them.
--            The words: 'whole'; 'gone', where nobody knows the tree any more; 'large', where it has more turns, or has
--            jobs under way, below which its leaves aren't all; 'later', where others were looked at instead; 'broken' where a
--            turn in it is missing}
-- Invariant: nothing changes, not even the order of use.

local left, reply = most, { 'ok' }

-- The lines of the turns from a leaf up to one that was seen, oldest first, at the end of `lines`; nil and a word where that
-- can't be said.
local function add_path(tenant, leaf, seen, lines)
  local path, digits = {}, leaf
  while digits ~= '' and not seen[digits] do
    if left == 0 then
      return 'large'
    end
    left = left - 1
    local line, parent = described(tenant, digits)
    if not line then
      return 'broken'
    end
    seen[digits], path[#path + 1], digits = true, line, parent
  end
  for at = #path, 1, -1 do
    lines[#lines + 1] = path[at]
  end
end

local function surveyed(member)
  local tenant, root = split(member)
  local used = redis.call('ZSCORE', trees, member)
  if not used or used == '0' then
    return 'gone 0 0'
  end
  local about = used .. ' ' .. (redis.call('HGET', key('node', tenant, root), 'jobs') or '0')
  local set, full = key('tree', tenant, root), left == most
  if string.match(about, ' [^0]') or redis.call('SCARD', set) > most then
    return 'large ' .. about
  end
  local seen, lines = {}, { 'whole ' .. about }
  for _, leaf in ipairs(redis.call('SMEMBERS', set)) do
    local why = add_path(tenant, leaf, seen, lines)
    if why == 'large' and not full then
      return 'later ' .. about
    elseif why then
      return why .. ' ' .. about
    end
  end
  return table.concat(lines, '\n')
end

for member in string.gmatch(members, '%S+') do
  reply[#reply + 1] = surveyed(member)
end
return reply
