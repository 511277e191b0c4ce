--- include adding
--- include eviction
--- include spending
--- include standing
-- Store a turn as append.lua does, and have a conversation stand at it. A conversation begins with a root, or, as a fork,
-- with a child of any turn.
--
-- Keys:      node, messages, response, clock, usage, leaves, trees
-- Arguments: conversation       the digits of the conversation
--            conversation_blob  how it is shown, where it begins; else ''
--            no_messages        what is stored as its messages
--            parent             the parent's digits, at which it stands, or from which it begins; '' for a root
--            pin                names the run that holds the conversation, or where it begins the pin on the parent, or ''
--            room               the most bytes that the server may hold for the turn, and for a conversation that begins
--            spent              what is counted of the response (spending.lua), or ''
-- Result:    {'ok', how many turns were evicted for what} | {'gone'} when the conversation isn't there any more |
--            {'moved'} when it stands elsewhere, or another run holds it | {'conflict'} | {'missing'} | {'status', the
--            parent's status} | {'long'} | {'large'} | {'again'} | {'full'} | {'late', the ms on this clock}, as in append.lua
-- Invariant: both or neither: a turn is stored, and the conversation stands at it and is held by nobody. What it had is
--            never more than one chain. A retry of what is stored is 'ok'.

local begins = conversation_blob ~= ''
local reply = not_to_add(unpack(redis.call('HMGET', node, 'digest', 'root')))
if reply then
  return reply
end
local why = not begins and barred(tenant, conversation, parent, pin)
if why then
  return { why }
elseif not begins then
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
add_node(tenant, parent, from, score)
release(tenant, parent, from.root)
note_held(tenant, from, held_by(node) + held_by(messages) + held_by(response))
if begins then
  local shown = key('response', tenant, conversation)
  redis.call('MSET', key('messages', tenant, conversation), no_messages, shown, conversation_blob)
  local created = exact(now_us)
  enlist(tenant, conversation, created)
  redis.call('HSET', key('node', tenant, conversation), 'children', 0, 'status', status, 'continuable', continuable,
    'digest', digest, 'created', created, 'messages_bytes', #no_messages, 'response_bytes', #conversation_blob)
  count(tenant, 'responses', 1)
else
  let_go(tenant, conversation, from.root, pin)
end
note_unarchived(tenant, from.root, '+' .. digits, score)
note_conversation(tenant, conversation, stand_at(tenant, conversation, digits, begins and '' or parent, score))
return reply_with_evicted('ok')
