--- include idle
--- include eviction
--- include standing
--- include using
-- Change how a conversation is shown.
--
-- Arguments: parent         the digits of the conversation itself, which stays while room is made
--            response_blob  how it is shown from now on
-- Result:    {'ok', how many turns were evicted for what} | {'missing'} | {'again'} | {'full'}, as in append.lua
-- Invariant: it stands where it stood. No cap is passed; a retry changes nothing.

local root, deleted, depth, messages_bytes, held = unpack(call('HMGET', node, 'root', 'deleted', 'depth',
  'messages_bytes', 'held'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
if max_responses > 0 then
  max_responses = max_responses + 1 -- it is among them already
end
local verdict = make_room(root)
if verdict ~= 'ok' then
  return reply_with_evicted(verdict)
end
call('SET', response, response_blob)
call('HSET', node, 'response_bytes', #response_blob)
touch(root)
note_unarchived(tenant, root, '+' .. digits, next_score(clock))
note_held(tenant, digits, held, held_for(tenant, tonumber(depth), tonumber(messages_bytes), #response_blob))
return reply_with_evicted('ok')
