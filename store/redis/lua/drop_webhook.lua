-- A webhook was accepted, or given up: it waits no longer.
--
-- Keys:      outbox        the shard's outbox
-- Arguments: turns         what all keys of turns in the shard begin with
--            member        TENANT/DIGITS/STATUS
-- Result:    {'ok'}
-- Invariant: whoever else is sending it meanwhile changes nothing by that.

drop_webhooks(member)
return { 'ok' }
