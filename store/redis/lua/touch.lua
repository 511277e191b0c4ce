-- Mark a turn as used now, because its response is about to be read.
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
touch(root)
return found
