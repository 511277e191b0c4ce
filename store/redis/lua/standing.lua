--- include held
--- include pins
--- include places
--- include noting
-- Shared by the scripts that say where a conversation stands.
-- Invariant: a conversation is a turn without messages below the newest one that it has, its tip, and never has a child. So
-- it is a leaf like others: evicted before what it names, gone with its tree, counted among its tenant's turns. What it
-- continues is never taken away before it, also where that was deleted. It alone of all turns changes its parent: since
-- nothing is below it, no path (walk.lua) names it. Its `response` is the conversation as it is shown, and its pins are
-- the hold of the one run that may add to it. Where that is a job, its node has `awaits` with the digits of that instead,
-- from the job's acceptance on: it holds as long as the job is there, whoever works on it, and nobody renews it.

local BARRED_MS = 1000

-- Why a run that began at the turn `parent` may not be added any more, or nil. `token` is that of its hold, or the digits
-- of its job.
local function barred(tenant, conversation, parent, token)
  local node, pins = key('node', tenant, conversation), key('pins', tenant, conversation)
  local stands_at, deleted = unpack(call('HMGET', node, 'parent', 'deleted'))
  if not stands_at or deleted then
    return 'gone'
  elseif stands_at ~= parent or (pinned(pins) and not holds(pins, token))
    or (awaited(tenant, conversation) or token) ~= token then
    return 'moved'
  end
end

-- Keep a conversation, and the turn at which it stands and which may be deleted, for as long as room is made, which takes
-- nothing that is pinned. A run whose hold is over has it again so.
local function keep_for_room(tenant, conversation, parent, token)
  local pins = key('pins', tenant, conversation)
  if not holds(pins, token) then
    hold(pins, token, BARRED_MS)
  end
  hold(key('pins', tenant, parent), token, BARRED_MS)
end

-- Write the node of a conversation below a turn that was just added; `former` is the turn at which it stood, '' of none.
local function stand_at(tenant, conversation, digits, former, score)
  local node = key('node', tenant, conversation)
  local above = call('HMGET', key('node', tenant, digits), 'root', 'depth', 'chain_messages', 'chain_bytes', 'chain_held')
  local own_bytes, shown_bytes, before = unpack(call('HMGET', node, 'messages_bytes', 'response_bytes', 'held'))
  local root, depth = above[1], above[2] + 1
  local held = held_for(tenant, depth, tonumber(own_bytes), tonumber(shown_bytes))
  call('HSET', node, 'parent', digits, 'root', root, 'depth', depth, 'touched', score, 'chain_messages', above[3],
    'chain_bytes', above[4] + own_bytes, 'held', held, 'chain_held', above[5] + held)
  count(tenant, 'bytes', held - (before or 0))
  if has_path(depth) then
    call('HSET', node, 'path', path_from(tenant, digits))
  else
    call('HDEL', node, 'path')
  end
  call('HINCRBY', key('node', tenant, digits), 'children', 1)
  call('HSET', key('node', tenant, root), 'named', 1)
  if former ~= '' then
    call('HINCRBY', key('node', tenant, former), 'children', -1) -- the turn that was added is below it now
  end
  place_leaf(tenant, conversation, score)
  call('SADD', key('tree', tenant, root), conversation)
  note_unarchived(tenant, root, '+' .. conversation, score)
end
