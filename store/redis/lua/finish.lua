-- A background response has ended: store its turn, and the last entry of its log.
--
-- Keys:      node, messages, response, job, spec, clock, usage, leaves, trees
-- Arguments: token          of who holds the lease
--            status         how the response ended
--            continuable    1 if that status may be continued, else 0
--            digest         the digest of this content
--            added          how many messages the turn adds
--            after          the number of the event before the entry's first one, or '' to leave it unchecked
--            last           the number of the entry's last event
--            entry          the bytes of the log's last entry
--            announced      1 if a webhook is to be sent, else 0
--            max_pending    the most webhooks that wait
--            messages_blob  what to store under messages
--            response_blob  what to store under response
-- Result:    {'ok', how many webhooks were dropped for this one, '' or why it isn't added to the conversation that it was to
--            be added to: 'gone' when that isn't there any more, 'moved' when it stands elsewhere} | {'lost'} when somebody else holds the lease |
--            {'status', the response's} when it can't move from that to the given one | {'written', the number of the
--            last event in the log} when that is no earlier one | {'behind', the same number} when it is earlier than the
--            one before
-- Invariant: who has lost the lease changes nothing; a retry is 'ok'. The place was taken when the job was accepted, so
--            it is never too large and never too much. Nobody sees the last event before the turn is stored. With it its
--            conversation stands at it, unless it failed, and is held by nobody.

local mode, root, parent, fleeting, held, stored_digest, before, conversation =
  unpack(redis.call('HMGET', node, 'background', 'root', 'parent', 'fleeting', 'held', 'digest', 'status', 'joins'))
if not holds_lease(tenant, digits, token) then
  return { mode and stored_digest == digest and 'ok' or 'lost', 0, '' }
end
local written, log_bytes, snapshot_bytes = unpack(redis.call('HMGET', job, 'last', 'log_bytes', 'snapshot_bytes'))
if (before == 'cancelled') ~= (status == 'cancelled') then
  return { 'status', before }
elseif last <= tonumber(written) then
  return { 'written', written }
elseif (mode == 'stream' or fleeting) and after ~= '' and written ~= after then
  return { 'behind', written }
end
local above_messages, above_bytes, above_held = 0, 0, 0
if parent ~= '' then
  local above = redis.call('HMGET', key('node', tenant, parent), 'chain_messages', 'chain_bytes', 'chain_held')
  above_messages, above_bytes, above_held = above[1], above[2], above[3] or 0
end
local score = next_score(clock)
redis.call('MSET', messages, messages_blob, response, response_blob)
redis.call('HSET', node, 'status', status, 'continuable', fleeting and 0 or continuable, 'digest', digest,
  'touched', score, 'messages_bytes', #messages_blob, 'response_bytes', #response_blob,
  'chain_messages', above_messages + added, 'chain_bytes', above_bytes + #messages_blob)

if mode == 'stream' or fleeting then
  log_bytes = log_bytes + add_entry(tenant, digits, last, entry) - drop_snapshot(tenant, digits, snapshot_bytes or 0)
  redis.call('HSET', node, 'log_bytes', exact(log_bytes))
  redis.call('ZADD', shard_key('logs'), now_ms(), tenant .. '/' .. digits)
else
  drop_log(tenant, digits, log_bytes)
end
redis.call('UNLINK', job, spec)
redis.call('ZREM', shard_key('leases'), tenant .. '/' .. digits)

local joins = conversation and continuable == '1'
local why = joins and barred(tenant, conversation, parent, digits) or ''
if conversation then
  redis.call('HDEL', node, 'joins')
  redis.call('HDEL', key('node', tenant, conversation), 'awaits')
end
local holds_now = held_by(node) + held_by(messages) + held_by(response)
redis.call('HSET', node, 'held', holds_now, 'chain_held', exact(above_held + holds_now))
count(tenant, 'bytes', holds_now - held)
redis.call('ZADD', trees, score, tenant .. '/' .. root)
if joins and why == '' then
  note_conversation(tenant, conversation, stand_at(tenant, conversation, digits, parent, score))
else
  place_leaf(tenant, digits, score)
  redis.call('SADD', key('tree', tenant, root), digits)
  local stands_at = conversation and redis.call('HGET', key('node', tenant, conversation), 'parent')
  if stands_at then
    note_conversation(tenant, conversation, redis.call('HGET', key('node', tenant, stands_at), 'chain_held') or 0)
  end
end
if redis.call('HINCRBY', key('node', tenant, root), 'jobs', -1) == 0 then
  redis.call('HDEL', key('node', tenant, root), 'jobs')
end
local dropped = announced == '1' and announce(tenant, digits, status, max_pending) or 0
record(usage)
return { 'ok', dropped, why }
