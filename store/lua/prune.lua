-- Take away a tombstone that nothing needs, then each tombstone above it that thereby loses its last child.
--
-- Keys:      usage     the shard's usage
--            leaves    the shard's leaves
--            trees     the shard's trees
-- Arguments: nodes     what all nodes of the tenant begin with
--            messages  what all messages of the tenant begin with
--            pins      what all pins of the tenant begin with
--            tree      what all sets of a tree's leaves of the tenant begin with
--            tenant    the tenant
--            digits    where to begin
--            limit     the most turns that one call takes away
-- Result:    {'ok'} | {'more', the digits to go on with}
-- Invariant: takes only what is deleted and has neither a child nor a live pin. A turn whose last child goes
--            is a leaf again, as recently used as it or that child was. Where a call stops, what is left is a
--            leaf, so a caller who never comes back leaves nothing that eviction can't find.

for _ = 1, limit do
  local node = nodes .. digits
  local turn = redis.call('HMGET', node, 'deleted', 'children', 'parent', 'root', 'messages_bytes', 'touched')
  local deleted, children, parent, root, bytes, touched = unpack(turn)
  if not deleted or tonumber(children) > 0 or pinned(pins .. digits) then
    return { 'ok' }
  end
  redis.call('UNLINK', node, messages .. digits, pins .. digits)
  redis.call('ZREM', leaves, tenant .. '/' .. digits)
  redis.call('SREM', tree .. root, digits)
  count(usage, tenant, { tombstones = -1, trees = parent == '' and -1 or 0, bytes = -bytes })
  if parent == '' then
    redis.call('ZREM', trees, tenant .. '/' .. root)
    return { 'ok' }
  end
  if redis.call('HINCRBY', nodes .. parent, 'children', -1) > 0 then
    return { 'ok' }
  end
  local own = redis.call('HGET', nodes .. parent, 'touched')
  local score = tonumber(own) > tonumber(touched) and own or touched
  redis.call('HSET', nodes .. parent, 'touched', score)
  redis.call('ZADD', leaves, score, tenant .. '/' .. parent)
  redis.call('SADD', tree .. root, parent)
  digits = parent
end
return { 'more', digits }
