--- include look_at
-- What touch.lua says of a turn, without the touch: for who looks of itself, and for a server that takes no writes.
--
-- Keys:      node, job, trees
-- Arguments: idle_us  for how long a tree may be unused; 0: for ever
-- Result:    {'ok', its status, its mode in the background or '', 1 if it is under way, 1 if it has events to be read}
--            | {'missing'}
-- Invariant: nothing changes.

return looked_at(idle_us) or { 'missing' }
