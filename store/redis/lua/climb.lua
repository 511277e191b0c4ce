-- Some turns of a tree: from each of these turns up to one that was seen before, or to the root.
--
-- Keys:      trees
-- Arguments: tenant  whose they are
--            ends    the digits of the turns to begin with, with spaces between
--            seen    the digits of turns with several children that were seen before, with spaces between
--            most    how many turns are looked at
-- Result:    {'ok', the digits of the turns to go on with, with spaces between, and for each turn its digits, its parent's or -, its
--            depth, its status, when it was made and used last (µs), how many children it has, the bytes of its response, and
--            D if it was deleted, else -, with spaces between}
-- Invariant: nothing changes. Two ways up meet in a turn with several children, so with those no turn is told twice.

local SHOWN = { 'parent', 'depth', 'status', 'created', 'touched', 'children', 'response_bytes', 'deleted' }

local known, left, rest, reply = {}, most, {}, { 'ok', '' }
local nodes, call, last = key('node', tenant, ''), redis.call, #SHOWN
for digits in string.gmatch(seen, '%x+') do
  known[digits] = true
end
for digits in string.gmatch(ends, '%x+') do
  while digits ~= '' and not known[digits] and left > 0 do
    left = left - 1
    known[digits] = true
    local found = call('HMGET', nodes .. digits, unpack(SHOWN))
    if not found[1] then
      digits = ''
    else
      local parent = found[1]
      found[1] = parent == '' and '-' or parent
      for at = 2, last - 1 do
        found[at] = found[at] or '0'
      end
      found[last] = found[last] and 'D' or '-'
      reply[#reply + 1] = digits .. ' ' .. table.concat(found, ' ')
      digits = parent
    end
  end
  if digits ~= '' and not known[digits] then
    rest[#rest + 1] = digits
  end
end
reply[2] = table.concat(rest, ' ')
return reply
