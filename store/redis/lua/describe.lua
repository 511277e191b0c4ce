--- include describing
--- include idle
-- For a backup: what the nodes of some turns say, and of turns above them.
--
-- Arguments: members  TENANT/DIGITS of turns, with spaces between
--            above    how many turns above each are described too
--            idle_us  for how long a tree may be unused, whose turns are as if they weren't there; 0: for ever; -1: also those
--                     of trees that were forgotten are described
-- Result:    {'ok', for each of the turns one reply: a line for it and for each turn above it, newest first, as describing.lua
--            has them, or '' where it isn't there}
-- Invariant: nothing changes, not even the order of use.

local reply = { 'ok' }
for member in string.gmatch(members, '%S+') do
  local tenant, digits = split(member)
  local lines, parent = {}, nil
  local root = idle_us >= 0 and redis.call('HGET', key('node', tenant, digits), 'root')
  for at = 0, root and gone(tenant, root, idle_us) and -1 or above do
    lines[at + 1], parent = described(tenant, digits)
    if not lines[at + 1] or parent == '' then
      break
    end
    digits = parent
  end
  reply[#reply + 1] = table.concat(lines, '\n')
end
return reply
