--- include outbox
-- A webhook was accepted, or given up: it waits no longer.
--
-- Keys:      outbox
-- Arguments: member  TENANT/DIGITS/STATUS
-- Result:    {'ok'}
-- Invariant: whoever else is sending it meanwhile changes nothing by that.

drop_webhooks(member)
return { 'ok' }
