--- include accepting
--- include adding
--- include ending
--- include eviction
--- include log_room
--- include outbox
-- A background response to which something was said has ended, and another one goes on from it: store the turn of the one
-- with the last entry of its log, and accept the other, which is the turn that this is about.
--
-- Arguments: parent          the digits of the one that has ended
--            ended_status    how it ended
--            ended_digest    the digest of its content
--            ended_added     how many messages it adds
--            ended_said      the digest of all that was said up to its end, or ''
--            ended_last      the number of the entry's last event
--            ended_entry     the bytes of its log's last entry
--            ended_messages  what to store under its messages
--            ended_response  what to store under its response
--            ended_pictures  the pictures that it shows (pictures.lua)
-- Result:    {'ok', how many turns were evicted for what (eviction.lua), how many webhooks were dropped for this one} |
--            {'lost'}, {'illegal', …}, {'written', …}, {'behind', …} and {'steered'} as in finish.lua | {'queue'},
--            {'crowded'}, {'conflict'}, {'long'}, {'large'}, {'again'} and {'full'} as in submit.lua
-- Invariant: both or neither, and once: a retry is 'ok', even if the other one has ended since. It waits in the place in line
--            that the one had, at the level of its priority; its events are kept if those of the one are.

local digest_there, submission = unpack(call('HMGET', node, 'digest', 'submission'))
if digest_there and submission ~= digest then
  return { 'conflict' }
elseif digest_there then
  return { 'ok', '', 0 }
end
if not holds_lease(tenant, parent, token) then
  return { 'lost' }
end
local turn = ending_of(tenant, parent)
local refusal = not_to_end(turn, ended_status, after, ended_last, steers)
if refusal then
  return refusal
end
local log_bytes = #entry + ENTRY_BYTES
local own, sequence = unpack(call('HMGET', turn.job, 'own', 'sequence'))
local refused = no_place(tenant, own, log_bytes, max_queued, max_waiting)
if refused then
  return refused
end
local depth, chain_held = unpack(call('HMGET', turn.node, 'depth', 'chain_held'))
if depth + 1 > max_depth then
  return { 'long' }
elseif max_bytes > 0 and (chain_held or 0) + room > max_bytes then
  return { 'large' }
end
local verdict = make_room(turn.root)
if verdict == 'ok' then
  verdict = take_log_room(log_bytes, max_logged, budget)
end
if verdict ~= 'ok' then
  return reply_with_evicted(verdict)
end

end_job(turn, { status = ended_status, continuable = '1', digest = ended_digest, added = ended_added, said = ended_said,
  last = ended_last, entry = ended_entry, messages = ended_messages, response = ended_response, pictures = ended_pictures,
  spent = spent })
local dropped = announced == '1' and announce(tenant, parent, ended_status, max_pending) or 0
local above = call('HMGET', turn.node, 'chain_messages', 'chain_bytes', 'chain_held')
local from = { root = turn.root, depth = depth + 1, messages = above[1], bytes = above[2], held = above[3] }
add_node(tenant, parent, from, next_score(clock), JOB_BYTES + #spec_blob)
add_job(tenant, digits, turn.root, turn.mode, own, sequence, log_bytes)
call('HSET', job, 'steerable', 1)
record()
return { 'ok', told_of_evicted(), dropped }
