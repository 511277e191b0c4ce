-- Take away what was used least, because the server itself has no memory left.
--
-- Keys:      usage     the shard's usage
--            leaves    the shard's leaves
--            trees     the shard's trees
-- Arguments: turns     what all keys of turns in the shard begin with
--            missing   how many of the shard's bytes have to go
--            kept      TENANT/DIGITS of a turn that is about to be continued, or ''
--            budget    the most turns that this call takes away
-- Result:    {'ok', bytes gone} | {'again', bytes gone} when more has to go | {'full', bytes gone} when all that is left
--            is pinned
-- Invariant: as eviction by caps; a repeat after a lost reply takes as much again, which is no harm.

local _, _, before = stored(usage, leaves)
local verdict = make_room(math.huge, math.huge, math.max(0, before - missing), budget, kept)
local _, _, after = stored(usage, leaves)
settle(usage)
local freed = exact(before - after)
if verdict == 'again' then
  return { 'again', freed }
end
if verdict == 'full' then
  return { 'full', freed }
end
return { 'ok', freed }
