--- include held
--- include idle
--- include logs
--- include noting
--- include pictures
--- include said
-- Take an item out of a turn: what it had is stored anew without it, and nothing of it is left in any other place.
--
-- Arguments: redactions     how often that was done when the turn was read, or ''
--            messages_blob  the messages from now on, as many as before
--            response_blob  the response and the input items from now on
--            notes          what is noted of pictures from now on; of those whose digest it lacks the turn shows none
-- Result:    {'ok'} | {'changed'} when the turn was deleted, erased or redacted since | {'missing'} | {'running'}
-- Invariant: a redaction is made of what is stored. Its sums stay as they were, as for messages that were erased whole, and so
--            do the places of messages. The log, which has the item too, goes.

local root, deleted, erased, before, held, log_bytes, depth, said, shown = unpack(call('HMGET', node, 'root', 'deleted',
  'erased', 'redactions', 'held', 'log_bytes', 'depth', 'said', 'pictures'))
if not root or gone(tenant, root, idle_us) then
  return { 'missing' }
elseif call('EXISTS', key('job', tenant, digits)) == 1 then
  return { 'running' }
end
local place = deleted and key('remains', tenant, digits) or response
if (before or '') ~= redactions or (erased and not before) or call('EXISTS', place) == 0 then
  return { 'changed' }
end
call('MSET', messages, messages_blob, place, response_blob)
call('HSET', node, 'erased', 1, 'redactions', (before or 0) + 1, 'messages_bytes', #messages_blob,
  'response_bytes', deleted and 0 or #response_blob)
call('HSET', key('node', tenant, root), 'has_erased', 1)
if said then
  call('HDEL', node, 'said')
  unsay(tenant, digits, said)
end
if log_bytes then
  call('HDEL', node, 'log_bytes')
  drop_log(tenant, digits, log_bytes)
end
if shown then
  unshow(tenant, digits, shown, notes)
end
note_unarchived(tenant, root, '+' .. digits, next_score(shard_key('clock')))
note_held(tenant, digits, held, held_for(tenant, tonumber(depth), #messages_blob, #response_blob))
record()
return { 'ok' }
