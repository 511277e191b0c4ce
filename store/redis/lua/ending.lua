--- include held
--- include logs
--- include pictures
--- include places
--- include said
--- include spending
--- include standing
-- Shared by the scripts by which a background response ends: by itself, or together with the beginning of another one.
-- Arguments: token        of who holds the lease
--            after        the number of the event before the entry's first one, or '' to leave it unchecked
--            steers       the ids of all that was said to it meanwhile, as far as the holder knows, with spaces between
--            announced    1 if a webhook is to be sent, else 0
--            max_pending  the most webhooks that wait
--            spent        what is counted of it (spending.lua), or ''
-- Invariant: who has lost the lease ends nothing. What was said to a response meanwhile is known to whoever ends it, who says
-- in its last entry what became of that. With the turn its conversation stands at it, unless it failed, and is held by nobody.

-- The fields of a job before its end, by its turn.
local function ending_of(tenant, digits)
  local turn = { tenant = tenant, digits = digits, node = key('node', tenant, digits), job = key('job', tenant, digits) }
  turn.mode, turn.root, turn.parent, turn.depth, turn.fleeting, turn.held, turn.digest, turn.status, turn.conversation,
    turn.chain_held = unpack(call('HMGET', turn.node, 'background', 'root', 'parent', 'depth', 'fleeting', 'held',
      'digest', 'status', 'joins', 'chain_held'))
  turn.written, turn.log_bytes, turn.snapshot_bytes, turn.steers =
    unpack(call('HMGET', turn.job, 'last', 'log_bytes', 'snapshot_bytes', 'steers'))
  turn.kept = turn.mode == 'stream' or turn.fleeting
  return turn
end

-- The reply with the reason why a job can't end with this status and this entry, or nil.
local function not_to_end(turn, status, after, last, steers)
  if (turn.status == 'cancelled') ~= (status == 'cancelled') then
    return { 'illegal', turn.status }
  elseif last <= tonumber(turn.written) then
    return { 'written', turn.written }
  elseif turn.kept and after ~= '' and turn.written ~= after then
    return { 'behind', turn.written }
  elseif (turn.steers or '') ~= steers then
    return { 'steered' }
  end
end

-- Store the turn of a job as it ended, and close its log; why it isn't added to its conversation, or ''. `ended` has status,
-- continuable, digest, added, said, last, entry, spent, messages, response and pictures, as the arguments of finish.lua.
local function end_job(turn, ended)
  local tenant, digits, node = turn.tenant, turn.digits, turn.node
  local messages, response = key('messages', tenant, digits), key('response', tenant, digits)
  local above_messages, above_bytes, above_said = 0, 0, nil
  if turn.parent ~= '' then
    above_messages, above_bytes, above_said = unpack(call('HMGET', key('node', tenant, turn.parent), 'chain_messages',
      'chain_bytes', 'said'))
  end
  spend(tenant, ended.spent)
  local score, held = next_score(clock), held_for(tenant, tonumber(turn.depth), #ended.messages, #ended.response)
  if not turn.fleeting and ended.said ~= '' then
    say(tenant, digits, ended.said)
    call('HSET', node, 'said', ended.said)
    held = held + WORDS_BYTES
  end
  if above_said and not turn.fleeting and ended.continuable == '1' then
    call('HSET', key('node', tenant, turn.parent), 'continued', '1')
  end
  local made = show(tenant, digits, ended.pictures)
  call('MSET', messages, ended.messages, response, ended.response)
  call('HSET', node, 'status', ended.status, 'continuable', turn.fleeting and 0 or ended.continuable,
    'digest', ended.digest, 'touched', score, 'messages_bytes', #ended.messages, 'response_bytes', #ended.response,
    'chain_messages', above_messages + ended.added, 'chain_bytes', above_bytes + #ended.messages, 'held', held,
    'chain_held', (turn.chain_held or turn.held) + held - turn.held + made)
  count(tenant, 'bytes', held - turn.held)
  if turn.steers then
    call('HSET', node, 'steers', turn.steers)
  end

  if turn.kept then
    local grown = #ended.entry + ENTRY_BYTES - (turn.snapshot_bytes or 0)
    add_entry(tenant, digits, ended.last, ended.entry)
    call('UNLINK', key('snapshot', tenant, digits))
    note_logged(grown)
    call('HSET', node, 'log_bytes', exact(turn.log_bytes + grown))
    call('ZADD', shard_key('logs'), now_ms, tenant .. '/' .. digits)
  else
    drop_log(tenant, digits, turn.log_bytes)
  end
  call('UNLINK', turn.job, key('spec', tenant, digits))
  call('ZREM', shard_key('leases'), tenant .. '/' .. digits)

  local conversation = turn.conversation
  local joins = conversation and ended.continuable == '1'
  local why = joins and barred(tenant, conversation, turn.parent, digits) or ''
  if conversation then
    call('HDEL', node, 'joins')
    call('HDEL', key('node', tenant, conversation), 'awaits')
  end
  place_tree(tenant, turn.root, score)
  if not turn.fleeting then
    note_unarchived(tenant, turn.root, '+' .. digits, score)
  end
  if joins and why == '' then
    stand_at(tenant, conversation, digits, turn.parent, score)
  else
    place_leaf(tenant, digits, score)
    call('SADD', key('tree', tenant, turn.root), digits)
  end
  if call('HINCRBY', key('node', tenant, turn.root), 'jobs', -1) == 0 then
    call('HDEL', key('node', tenant, turn.root), 'jobs')
  end
  return why
end
