-- Let go of a pin: its run ended without a turn.
--
-- Keys:      node      the turn's node
--            pins      the turn's pins
-- Arguments: pin       the token
-- Result:    {'ok'} | {'prune'} when the turn is deleted, so the pin may have been all that kept it
-- Invariant: other pins stay; a pin that is gone already is no error.

redis.call('ZREM', pins, pin)
local deleted = redis.call('HEXISTS', node, 'deleted') == 1
return { deleted and 'prune' or 'ok' }
