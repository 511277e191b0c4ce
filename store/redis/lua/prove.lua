-- Prove that the shard's server would write: it refuses every script that may, where it would refuse a write.
--
-- Arguments: takes_turns  1 to ask whether it takes turns, too
-- Result:    {'ok'} | {'closed'} when it takes none, as its disk is nearly full (store/guard.py)
-- Invariant: nothing changes.

local CLOSED = '1' -- the memory limit of a server that takes no turns

if takes_turns == '1' and string.match(call('INFO', 'memory'), 'maxmemory:(%d+)') == CLOSED then
  return { 'closed' }
end
return { 'ok' }
