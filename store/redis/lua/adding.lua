--- include held
--- include idle
--- include pictures
--- include pins
--- include places
--- include said
-- Shared by the scripts that add a turn: what it has from those above it, and its node.
-- Arguments: pin        the token of the run's pin on the parent, or of its hold of a conversation, or ''
--            max_depth  the most turns of a chain
-- Invariant: a deleted parent takes no child but from the run that has it pinned; one whose status or depth forbids a
-- child takes none. A node is written once its place is sure.
--
-- A number is made text by each call that it is given to, which takes as long as a short command: so what is always the same
-- is given as text, here and wherever turns are added or evicted.

-- The values that a turn inherits from its parent; or nil, and the reply with the reason why it can't be added.
local function inherited(tenant, digits, parent, pin)
  local from
  if parent == '' then
    from = { root = digits, depth = 1, messages = 0, bytes = 0, held = 0 }
  else
    local above = call('HMGET', key('node', tenant, parent), 'root', 'depth', 'deleted', 'continuable', 'status',
      'chain_messages', 'chain_bytes', 'chain_held', 'said')
    if not above[1] or gone(tenant, above[1], idle_us)
      or (above[3] and not holds(key('pins', tenant, parent), pin)) then
      return nil, { 'missing' }
    elseif above[4] ~= '1' then
      return nil, { 'status', above[5] }
    elseif above[2] + 1 > max_depth then
      return nil, { 'long' }
    end
    from = { deleted = above[3], root = above[1], depth = above[2] + 1, messages = above[6], bytes = above[7],
      held = above[8] or 0, said = above[9] }
  end
  if max_bytes > 0 and from.held + room > max_bytes then
    return nil, { 'large' }
  end
  return from
end

-- The run's pin on the parent has done its work.
local function release(tenant, parent, root)
  if parent ~= '' and pin ~= '' then
    call('ZREM', key('pins', tenant, parent), pin)
    call('ZREM', key('runs', tenant, root), pin)
  end
end

-- The reply of a call that adds nothing, for the digest that is known of the turn, or nil: it was added before, another turn
-- has its id, or the caller has given up.
local function not_to_add(known, root)
  if known and known ~= digest then
    return { 'conflict' }
  elseif known then
    release(tenant, parent, root)
    return { 'ok' }
  elseif now_ms > not_after then
    return { 'late', exact(now_ms) }
  end
end

-- Write the turn's blobs and its node; a job takes so many bytes more. Its parent has one child more, and is no leaf.
local function add_node(tenant, parent, from, score, job_bytes)
  local held = held_for(tenant, from.depth, #messages_blob, #response_blob) + job_bytes
  local made = show(tenant, digits, pictures)
  local more = {}
  if said ~= '' then
    say(tenant, digits, said)
    held, more = held + WORDS_BYTES, { 'said', said }
  end
  if has_path(from.depth) then
    more[#more + 1], more[#more + 2] = 'path', path_from(tenant, parent)
  end
  call('MSET', messages, messages_blob, response, response_blob)
  call('HSET', node, 'parent', parent, 'root', from.root, 'depth', from.depth, 'children', '0', 'status', status,
    'continuable', continuable, 'digest', digest, 'created', score, 'touched', score,
    'messages_bytes', #messages_blob, 'response_bytes', #response_blob, 'chain_messages', from.messages + added,
    'chain_bytes', from.bytes + #messages_blob, 'held', held, 'chain_held', from.held + held + made, unpack(more))
  if from.said and continuable == '1' then
    call('HSET', key('node', tenant, parent), 'continued', '1')
  end
  place_tree(tenant, from.root, score)
  count(tenant, 'responses', 1)
  count(tenant, 'bytes', held)
  if parent == '' then
    count(tenant, 'trees', 1)
  elseif call('HINCRBY', key('node', tenant, parent), 'children', '1') == 1 then
    displace_leaf(tenant, parent, from.deleted)
    call('SREM', key('tree', tenant, from.root), parent)
  end
end
