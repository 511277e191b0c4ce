--- include tree_jobs
-- Some turns of a tree: from each of these turns up to one that was seen before, or to the root.
--
-- Arguments: tenant  whose they are
--            ends    the digits of the turns to begin with, with spaces between
--            seen    the digits of turns with several children that were seen before, with spaces between
--            most    how many turns are looked at
-- Result:    {'ok', the digits of the turns to go on with, with spaces between, and for each turn what is shown of it}
-- Invariant: nothing changes. Two ways up meet in a turn with several children, so with those no turn is told twice.

local known, left, rest, reply = {}, most, {}, { 'ok', '' }
for digits in string.gmatch(seen, '%x+') do
  known[digits] = true
end
for digits in string.gmatch(ends, '%x+') do
  while digits ~= '' and not known[digits] and left > 0 do
    left = left - 1
    known[digits] = true
    local row, parent = shown(tenant, digits)
    reply[#reply + 1] = row
    digits = parent or ''
  end
  if digits ~= '' and not known[digits] then
    rest[#rest + 1] = digits
  end
end
reply[2] = table.concat(rest, ' ')
return reply
