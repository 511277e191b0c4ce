-- Announce that a response has ended, apart from whatever ended it.
--
-- Keys:      outbox        the shard's outbox
-- Arguments: turns         what all keys of turns in the shard begin with
--            tenant        the tenant
--            digits        the response's digits
--            status        how it ended
--            max_pending   the most webhooks that may wait
-- Result:    {'ok', how many of the oldest were dropped for it}
-- Invariant: one that waits already stays as it is.

return { 'ok', exact(announce(tenant, digits, status, max_pending)) }
