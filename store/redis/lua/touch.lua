--- include look_at
--- include using
-- Mark a turn as used now, because its response is about to be read. One under way is kept without that.
--
-- Keys:      node, job, clock, leaves, trees
-- Arguments: idle_us  for how long a tree may be unused; 0: for ever
-- Result:    {'ok', its status, its mode in the background or '', 1 if it is under way, 1 if it has events to be read}
--            | {'missing'}
-- Invariant: a turn that is missing or deleted is not touched.

local found, root = looked_at(idle_us)
if not found then
  return { 'missing' }
end
if found[4] == 0 then -- nothing evicts what is under way, nor makes it idle, so to ask for it often costs no write
  touch(root)
end
return found
