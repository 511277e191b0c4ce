-- Take away the tombstones of a path that nothing needs: a turn, then each above it that loses its last child.
--
-- Keys:      usage     the shard's usage
--            leaves    the shard's leaves
--            trees     the shard's trees
-- Arguments: nodes     what all nodes of the tenant begin with
--            messages  what all messages of the tenant begin with
--            pins      what all pins of the tenant begin with
--            tree      what all sets of a tree's leaves of the tenant begin with
--            tenant    the tenant
--            path      digits of turns, each the parent of the one before, in one string
--            size      how many digits a turn has
-- Result:    {'gone'} when none of them is left | {'needed'} when one is, so that all above it are needed too
-- Invariant: takes only what is deleted and has neither a child nor a live pin, and passes over what is gone,
--            so a repeat after a lost reply comes to the same. A turn whose last child goes is a leaf again, as
--            recently used as it or that child was; so a caller who never comes back leaves nothing that
--            eviction can't find.

local function take(digits, parent, root, bytes)
  redis.call('UNLINK', nodes .. digits, messages .. digits, pins .. digits)
  redis.call('ZREM', leaves, tenant .. '/' .. digits)
  redis.call('SREM', tree .. root, digits)
  count(usage, tenant, { tombstones = -1, trees = parent == '' and -1 or 0, bytes = -bytes })
end

local function leave(parent, root, touched)
  if redis.call('HINCRBY', nodes .. parent, 'children', -1) > 0 then
    return
  end
  local own = redis.call('HGET', nodes .. parent, 'touched')
  local score = tonumber(own) > tonumber(touched) and own or touched
  redis.call('HSET', nodes .. parent, 'touched', score)
  redis.call('ZADD', leaves, score, tenant .. '/' .. parent)
  redis.call('SADD', tree .. root, parent)
end

for at = 1, #path, size do
  local digits = string.sub(path, at, at + size - 1)
  local turn = redis.call('HMGET', nodes .. digits, 'root', 'deleted', 'children', 'parent', 'messages_bytes',
    'touched')
  local root, deleted, children, parent, bytes, touched = unpack(turn)
  if root then
    if not deleted or tonumber(children) > 0 or pinned(pins .. digits) then
      return { 'needed' }
    end
    take(digits, parent, root, bytes)
    if parent == '' then
      redis.call('ZREM', trees, tenant .. '/' .. root)
    else
      leave(parent, root, touched)
    end
  end
end
return { 'gone' }
