-- Prove that the shard's server would write: it refuses every script that may, where it would refuse a write.
--
-- Keys:      clock
-- Arguments: none
-- Result:    {'ok'}
-- Invariant: nothing changes.

return { 'ok' }
