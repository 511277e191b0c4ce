-- Shared by the scripts that read turns for a backup.
-- Invariant: nothing changes.

local DESCRIBED = { 'parent', 'root', 'deleted', 'erased', 'fleeting', 'status', 'digest', 'created', 'touched', 'held',
  'messages_bytes', 'response_bytes', 'chain_messages', 'chain_bytes', 'background', 'submission' }

-- A turn in words: its digits, then these fields, '-' for one that it hasn't, and what is said of its parent if its messages
-- were erased; and its parent. Nothing of a turn that isn't there.
local function described(tenant, digits)
  local found = redis.call('HMGET', key('node', tenant, digits), unpack(DESCRIBED))
  local parent = found[1]
  if not parent then
    return nil
  end
  local words = { digits }
  for at = 1, #DESCRIBED do
    words[at + 1] = found[at] and found[at] ~= '' and found[at] or '-'
  end
  if found[4] and parent ~= '' then
    local above = redis.call('HMGET', key('node', tenant, parent), 'chain_messages', 'chain_bytes')
    words[#words + 1] = above[1] or 0
    words[#words + 1] = above[2] or 0
  end
  return table.concat(words, ' '), parent
end
