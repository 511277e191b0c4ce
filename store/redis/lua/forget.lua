--- include elsewhere
--- include held
--- include idle
--- include logs
--- include pictures
--- include pins
--- include places
--- include said
-- Delete a turn: it becomes a tombstone, without its response, and without its messages if asked to. prune.lua, which is
-- called next, removes what nothing needs.
--
-- Arguments: erase        1 to erase the messages, which descendants then continue without; else 0
--            no_messages  what is stored in their place
-- Result:    {'ok', path} | {'deleted', path} when another call did it, and may have been cut short | {'missing', ''} |
--            {'running', ''} when it is under way | {'outdated', ''} when the archive has to be asked again; path is what to
--            prune: the digits up to the root, newest first, or '' if it has a child
-- Invariant: a tombstone keeps its node, its place and its pins, and its messages unless they were erased, whenever that
--            is asked; its response is gone. In a tree that had a conversation it goes to `remains`, for that one's lists,
--            unless it is erased.

local root, deleted, children, depth, held, erased, log_bytes, messages_bytes, said, shown = unpack(call('HMGET', node,
  'root', 'deleted', 'children', 'depth', 'held', 'erased', 'log_bytes', 'messages_bytes', 'said', 'pictures'))
if not root and archived_root ~= '' then
  return { note_gone((erase == '1' and 'x' or '-') .. digits), '' }
elseif not root or gone(tenant, root, idle_us) then
  return { 'missing', '' }
elseif call('EXISTS', key('job', tenant, digits)) == 1 then
  return { 'running', '' }
end
if log_bytes then
  call('HDEL', node, 'log_bytes')
  drop_log(tenant, digits, log_bytes)
end
if not deleted then
  call('HSET', node, 'deleted', token, 'response_bytes', 0)
  local listed = children ~= '0' and call('HEXISTS', key('node', tenant, root), 'named') == 1
  if listed and call('EXISTS', response) == 1 then
    call('RENAME', response, key('remains', tenant, digits))
  else
    call('UNLINK', response)
  end
  if said then
    call('HDEL', node, 'said')
    unsay(tenant, digits, said)
  end
  count(tenant, 'responses', -1)
  count(tenant, 'tombstones', 1)
  if is_conversation(digits) then
    unlist(tenant, digits)
  end
end
local remains = key('remains', tenant, digits)
local erases = erase == '1' and (not erased or tonumber(messages_bytes) > #no_messages or call('EXISTS', remains) == 1)
if erases then
  call('UNLINK', remains)
  call('SET', messages, no_messages)
  call('HSET', node, 'erased', 1, 'messages_bytes', #no_messages)
  call('HSET', key('node', tenant, root), 'has_erased', 1)
  if shown then
    unshow(tenant, digits, shown, '')
  end
end
if erases or not deleted then
  local left = erases and #no_messages or tonumber(messages_bytes)
  note_held(tenant, digits, held, held_for(tenant, tonumber(depth), left, call('STRLEN', remains)))
  note_unarchived(tenant, root, (erases and 'x' or '-') .. digits, next_score(shard_key('clock')))
  call('ZREM', changes_of(tenant, root), '+' .. digits)
end
local path = ''
if children == '0' then
  displace_leaf(tenant, digits, deleted)
  place_tombstone(tenant, digits, unpinned_from(pins)) -- for sweep.lua, if prune.lua is not called
  path = walk(tenant, digits, tonumber(depth))
end
record()
return { deleted and deleted ~= token and 'deleted' or 'ok', path }
