--- include adding
--- include eviction
--- include spending
-- Store a turn as a new root or as its parent's child, release the pin that its run held on that, and take away what
-- was used least to make room for it.
--
-- Keys:      node, messages, response, clock, usage, leaves, trees
-- Arguments: spent  what is counted of the response (spending.lua), or ''
-- Result:    {'ok', how many turns were evicted for what (eviction.lua)} | {'conflict'} | {'missing'} | {'status', the parent's status} | {'long'} |
--            {'large'} when it can't fit with its own chain alone | {'again'} when more has to go than one call may take,
--            or was looked at in vain: let evict.lua go on | {'full'} when all that is left has to stay | {'late', the ms
--            on this clock}
-- Invariant: stored completely and once, or not at all; a retry of what is stored is 'ok'. What its caller has given up
--            is not stored. A turn with children is no
--            leaf. A deleted parent takes no child but from the run that has it pinned. No cap is passed.
--
-- A node's fields: parent, root, depth (a root has 1), children, status, continuable, digest, created and
-- touched (µs), messages_bytes, response_bytes, held (usage.lua), chain_messages, chain_bytes and chain_held (the sums of
-- messages, of their bytes and of `held` from the root, as they were when the turn was added); at some depths path
-- (walk.lua); once deleted, `deleted` with the token of the call that did it; `erased` when its messages were too, and
-- `has_erased` on the root of a tree with such a turn, and `redactions`, how often a part of them was (redact.lua); `named`
-- on the root of a tree that ever had a conversation; and those of a background response (submit.lua).

local reply = not_to_add(unpack(redis.call('HMGET', node, 'digest', 'root')))
if reply then
  return reply
end
local from, refusal = inherited(tenant, digits, parent, pin)
if not from then
  return refusal
end
local verdict = make_room(from.root)
if verdict ~= 'ok' then
  return reply_with_evicted(verdict)
end

spend(tenant, spent)
local score = next_score(clock)
add_node(tenant, parent, from, score)
release(tenant, parent, from.root)
note_held(tenant, from, held_by(node) + held_by(messages) + held_by(response))
place_leaf(tenant, digits, score)
redis.call('SADD', key('tree', tenant, from.root), digits)
note_unarchived(tenant, from.root, '+' .. digits, score)
return reply_with_evicted('ok')
