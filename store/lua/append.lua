-- Store a turn whole, as a root or as its parent's child, and release the pin that its run held on that.
--
-- Keys:      node            the new turn's node
--            messages        the new turn's messages
--            response        the new turn's response
--            clock           the shard's clock
--            usage           the shard's usage
--            leaves          the shard's leaves
--            trees           the shard's trees
-- Arguments: nodes           what all nodes of the tenant begin with
--            pins            what all pins of the tenant begin with
--            tree            what all sets of a tree's leaves of the tenant begin with
--            tenant          the tenant
--            digits          the new turn's digits
--            parent          the parent's digits, or '' for a root
--            pin             the token that its run holds on the parent, or ''
--            status          how the response ended
--            continuable     1 if that status may be continued, else 0
--            digest          what tells this content from another
--            max_depth       the most turns of a chain
--            added           how many messages the turn adds
--            messages_blob   what to store under messages
--            response_blob   what to store under response
-- Result:    {'ok'} | {'conflict'} | {'missing'} | {'status', the parent's status} | {'long'}
-- Invariant: stored wholly and once, or nothing changes; a repeat of what is stored is 'ok'. A turn with
--            children is no leaf. A deleted parent takes no child but from the run that has it pinned.
--
-- A node's fields: parent, root, depth (a root has 1), children, status, continuable, digest, created and
-- touched (µs), messages_bytes, response_bytes, chain_messages and chain_bytes (of all messages from the root);
-- at some depths path (walk.lua); and, once deleted, `deleted` with the token of the call that did it.

local stored = redis.call('HGET', node, 'digest')
if stored and stored ~= digest then
  return { 'conflict' }
end
if stored then
  redis.call('ZREM', pins .. parent, pin)
  return { 'ok' }
end

local root, depth, path, chain_messages, chain_bytes = digits, 1, '', added, #messages_blob
if parent ~= '' then
  local above = redis.call('HMGET', nodes .. parent, 'root', 'depth', 'deleted', 'continuable', 'status',
    'chain_messages', 'chain_bytes')
  if not above[1] or (above[3] and not holds(pins .. parent, pin)) then
    return { 'missing' }
  end
  if above[4] ~= '1' then
    return { 'status', above[5] }
  end
  root, depth = above[1], above[2] + 1
  if depth > max_depth then
    return { 'long' }
  end
  chain_messages, chain_bytes = chain_messages + above[6], chain_bytes + above[7]
  path = has_path(depth) and path_from(nodes, parent) or ''
  redis.call('HINCRBY', nodes .. parent, 'children', 1)
  redis.call('ZREM', leaves, tenant .. '/' .. parent)
  redis.call('SREM', tree .. root, parent)
  redis.call('ZREM', pins .. parent, pin)
end

local score = next_score(clock)
redis.call('HSET', node, 'parent', parent, 'root', root, 'depth', depth, 'children', 0, 'status', status,
  'continuable', continuable, 'digest', digest, 'created', exact(now_us()), 'touched', score,
  'messages_bytes', #messages_blob, 'response_bytes', #response_blob,
  'chain_messages', chain_messages, 'chain_bytes', chain_bytes)
if path ~= '' then
  redis.call('HSET', node, 'path', path)
end
redis.call('SET', messages, messages_blob)
redis.call('SET', response, response_blob)
redis.call('ZADD', leaves, score, tenant .. '/' .. digits)
redis.call('ZADD', trees, score, tenant .. '/' .. root)
redis.call('SADD', tree .. root, digits)
count(usage, tenant, {
  responses = 1,
  trees = parent == '' and 1 or 0,
  bytes = #messages_blob + #response_blob,
})
return { 'ok' }
