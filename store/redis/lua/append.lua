--- include adding
--- include eviction
--- include spending
--- include standing
-- Store a turn as a new root or as its parent's child, release the pin that its run held on that, and take away what
-- was used least to make room for it. A conversation may stand at it then: one that the run holds, and which stands at the
-- parent, or one that begins here.
--
-- Arguments: spent              what is counted of the response (spending.lua), or ''
--            conversation       the digits of the conversation, or ''
--            conversation_blob  how it is shown, where it begins; else ''
--            no_messages        what is stored as its messages then
-- Result:    {'ok', how many turns were evicted for what (eviction.lua)} | {'conflict'} | {'missing'} | {'status', the parent's status} | {'long'} |
--            {'gone'} when the conversation isn't there any more | {'moved'} when it stands elsewhere, or another run holds it |
--            {'large'} when it can't fit with its own chain alone | {'again'} when more has to go than one call may take,
--            or was looked at in vain: let evict.lua go on | {'full'} when all that is left has to stay | {'unarchived'} until the
--            archive has more | {'late', the ms
--            on this clock}
-- Invariant: stored completely and once, or not at all; a retry of what is stored is 'ok'. What its caller has given up
--            is not stored. A turn with children is no leaf. A deleted parent takes no child but from the run that has
--            it pinned. No cap is passed. The turn is stored and the conversation stands at it, held by nobody, or neither.
--            What a conversation had is never more than one chain.
--
-- A node's fields: parent, root, depth (a root has 1), children, status, continuable, digest, created and
-- touched (µs), messages_bytes, response_bytes, held (held.lua), chain_messages, chain_bytes and chain_held (the sums of
-- messages, of their bytes and of `held` from the root, as they were when the turn was added); at some depths path
-- (walk.lua); said and continued (said.lua); once deleted, `deleted` with the token of the call that did it; `erased` when its messages were too, and
-- `has_erased` on the root of a tree with such a turn, and `redactions`, how often a part of them was (redact.lua); `named`
-- on the root of a tree that ever had a conversation; `pictures` (pictures.lua); and those of a background response (submit.lua).

local begins = conversation_blob ~= ''
local moves = conversation ~= '' and not begins
local reply = not_to_add(unpack(call('HMGET', node, 'digest', 'root')))
if reply then
  return reply
end
local why = moves and barred(tenant, conversation, parent, pin)
if why then
  return { why }
elseif moves then
  keep_for_room(tenant, conversation, parent, pin)
end
local from, refusal = inherited(tenant, digits, parent, pin)
if not from then
  return refusal
end
if begins and max_responses > 1 then
  max_responses = max_responses - 1 -- there are two turns to make room for
end
local verdict = make_room(from.root)
if verdict ~= 'ok' then
  return reply_with_evicted(verdict)
end

spend(tenant, spent)
local score = next_score(clock)
add_node(tenant, parent, from, score, 0)
release(tenant, parent, from.root)
note_unarchived(tenant, from.root, '+' .. digits, score)
if begins then
  call('MSET', key('messages', tenant, conversation), no_messages, key('response', tenant, conversation), conversation_blob)
  call('HSET', key('node', tenant, conversation), 'children', 0, 'status', status, 'continuable', continuable,
    'digest', digest, 'created', score, 'messages_bytes', #no_messages, 'response_bytes', #conversation_blob)
  enlist(tenant, conversation, score)
  count(tenant, 'responses', 1)
elseif moves then
  call('ZREM', key('pins', tenant, conversation), pin)
end
if conversation == '' then
  place_leaf(tenant, digits, score)
  call('SADD', key('tree', tenant, from.root), digits)
else
  stand_at(tenant, conversation, digits, begins and '' or parent, score)
end
return reply_with_evicted('ok')
