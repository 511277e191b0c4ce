--- include idle
--- include said
-- For a backup: what the nodes of some turns say, and of turns above them.
--
-- Arguments: members  TENANT/DIGITS of turns, with spaces between
--            above    how many turns above each are described too
--            idle_us  for how long a tree may be unused, whose turns are as if they weren't there; 0: for ever; -1: also those
--                     of trees that were forgotten are described
-- Result:    {'ok', for each of the turns one reply: a line for it and for each turn above it, newest first, or '' where it
--            isn't there}
-- Invariant: nothing changes, not even the order of use.

local DESCRIBED = { 'parent', 'root', 'deleted', 'erased', 'fleeting', 'status', 'digest', 'created', 'touched', 'held',
  'messages_bytes', 'response_bytes', 'chain_messages', 'chain_bytes', 'background', 'submission', 'pictures', 'said' }

-- The pictures that a turn shows, as far as they are there: HEX:LENGTH, with commas between, or '-'.
local function measured(tenant, shown)
  local told = {}
  for digest in string.gmatch(shown or '', string.rep('%x', 64)) do
    local length = call('HSTRLEN', key('picture', tenant, digest), 'bytes')
    told[#told + 1] = length > 0 and digest .. ':' .. length or nil
  end
  return told[1] and table.concat(told, ',') or '-'
end

-- A turn in words: its digits, then these fields, '-' for one that it hasn't, and what is said of its parent if its messages
-- were erased; and its parent. Nothing of a turn that isn't there.
local function described(tenant, digits)
  local found = call('HMGET', key('node', tenant, digits), unpack(DESCRIBED))
  local parent = found[1]
  if not parent then
    return nil
  end
  if found[6] == 'cancelled' and call('EXISTS', key('job', tenant, digits)) == 1 then
    found[6] = 'in_progress' -- its response is that of its submission until somebody has ended it
  end
  local words = { digits }
  for at = 1, #DESCRIBED do
    words[at + 1] = found[at] and found[at] ~= '' and found[at] or '-'
  end
  words[#words - 1] = measured(tenant, found[#DESCRIBED - 1])
  words[#words] = found[#DESCRIBED] and hex_of(found[#DESCRIBED]) or '-'
  if found[4] and parent ~= '' then
    local above = call('HMGET', key('node', tenant, parent), 'chain_messages', 'chain_bytes')
    words[#words + 1] = above[1] or 0
    words[#words + 1] = above[2] or 0
  end
  return table.concat(words, ' '), parent
end

local reply = { 'ok' }
for member in string.gmatch(members, '%S+') do
  local tenant, digits = split(member)
  local lines, parent = {}, nil
  local root = idle_us >= 0 and call('HGET', key('node', tenant, digits), 'root')
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
