--- include adding
--- include places
--- include unarchived
--- include using
-- Store a turn as a backup has it, below the one that it continues: with its times, alive or as a tombstone.
--
-- Arguments: parent         the parent's digits, or '' for a root
--            created        when it was stored, in µs
--            used           when it, and its tree, was used last, in µs
--            deleted        '-' of a tombstone, 'x' of one without messages, else ''
--            erased         the bytes of the messages that were erased, which were `added`; else ''
--            background     the mode of a response in the background, else ''
--            submission     the digest of its submission, else ''
--            held           about how many bytes the server will hold for it
--            wait_ms        for how long a tombstone waits for the turn that continues it
--            source         'archive' of a turn from that; 'file' where the archive was asked and lacks it; 'store' where the turn
--                           is not to be stored, but counts if it is; else ''
--            continued      1 of a turn that was continued, or may have been, by one that isn't here, else 0
--            asked_ms       the ms at which the archive was asked
--            fence_ms       for how long what the archive said then is taken for true
--            max_responses  the most responses in the shard; 0: any number
--            max_trees      the most trees in the shard; 0: any number
--            max_bytes      the most bytes that the server may hold for the shard; 0: any number
--            response_blob  what to store under response; of a tombstone ''
-- Result:    {'ok'} | {'kept'} when this turn is stored already | {'deleted'} when it was deleted since: it stays so |
--            {'forgotten', digits of its root} when it is still there of a tree that was forgotten | {'conflict'} when another
--            one is | {'missing'} when its parent isn't there, or the tree of that was forgotten | {'full'} when there is no
--            room | {'outdated'} when an archive has it, and it may have been deleted since that was asked, or will be
--            without a note of it, as the shard doesn't know that it has an archive
-- Invariant: nothing is evicted, and what is there is not changed but for the last use of its tree, which only rises. A turn
--            is stored completely and once; with the last turn of a tree all of it is as it was. Uses keep their order, and
--            none is later than the clock.

local function tree_use(root)
  return tonumber(call('ZSCORE', trees, tenant .. '/' .. root) or 0)
end

used = math.min(used, tonumber(next_score(clock)))

local stored_digest, is_deleted, children, stored_root = unpack(call('HMGET', node, 'digest', 'deleted', 'children', 'root'))
if stored_root and tree_use(stored_root) == 0 then
  return { 'forgotten', stored_root }
elseif stored_digest and stored_digest ~= digest then
  return { 'conflict' }
elseif stored_digest then
  use_tree(tenant, stored_root, exact(math.max(tree_use(stored_root), used)))
  if is_deleted and children == '0' then
    place_tombstone(tenant, digits, now_ms + wait_ms) -- not to be taken away before its child can be there
    record()
  end
  return { is_deleted and deleted == '' and 'deleted' or 'kept' }
end
if source == 'store' then
  return { 'missing' }
end
local from, before = { root = digits, depth = 1, messages = 0, bytes = 0, held = 0 }, 0
if parent ~= '' then
  local above = call('HMGET', key('node', tenant, parent), 'root', 'depth', 'deleted', 'chain_messages',
    'chain_bytes', 'chain_held', 'said')
  before = above[1] and tree_use(above[1]) or 0
  if before == 0 then
    return { 'missing' }
  end
  from = { root = above[1], depth = above[2] + 1, deleted = above[3], messages = above[4], bytes = above[5],
    held = above[6] or 0, said = above[7] }
end
if source ~= '' then
  if not archive_after() or now_ms > asked_ms + fence_ms then
    return { 'outdated' }
  elseif was_deleted(tenant, from.root, digits, deleted) then
    return { source == 'file' and 'deleted' or 'outdated' }
  end
end
local responses_now, trees_now, bytes_now = stored()
if (max_responses > 0 and deleted == '' and responses_now >= max_responses)
  or (max_trees > 0 and parent == '' and trees_now >= max_trees)
  or (max_bytes > 0 and bytes_now + held > max_bytes) then
  return { 'full' }
end

add_node(tenant, parent, from, exact(used), 0)
place_tree(tenant, from.root, exact(math.max(before, used)))
call('HSET', node, 'created', exact(created))
if continued == '1' and said ~= '' then
  call('HSET', node, 'continued', '1')
end
if background ~= '' then
  call('HSET', node, 'background', background, 'submission', submission)
end
if is_conversation(digits) then
  call('HSET', key('node', tenant, from.root), 'named', 1)
end
if erased ~= '' then
  call('HSET', node, 'erased', 1, 'chain_bytes', exact(from.bytes + erased))
  call('HSET', key('node', tenant, from.root), 'has_erased', 1)
  if deleted == '' then
    call('HSET', node, 'redactions', 1) -- items were taken out of it, and more may be
  end
end
if deleted ~= '' then
  call('HSET', node, 'deleted', 'backup', 'response_bytes', 0)
  call('UNLINK', response)
  count(tenant, 'responses', -1)
  count(tenant, 'tombstones', 1)
  place_tombstone(tenant, digits, now_ms + wait_ms)
else
  place_leaf(tenant, digits, exact(used))
  if is_conversation(digits) then
    enlist(tenant, digits, exact(created))
  end
end
call('SADD', key('tree', tenant, from.root), digits)
if source ~= 'archive' then
  note_unarchived(tenant, from.root, '+' .. digits, next_score(clock))
end
record()
return { 'ok' }
