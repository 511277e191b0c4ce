-- Shared by the scripts that make room: which turn goes next.
-- Invariant: the least recently used leaf goes first; where there are too many trees, the least recently used tree.
-- What a run has pinned stays, and so does `kept`, which is about to be continued; so all above them stays too.
--
-- Ranks below `from` were looked at in this call and have to stay. That stays true while others go: a leaf enters with
-- a score no lower than that of the child that made room for it.

local function split(member)
  local slash = string.find(member, '/', 1, true)
  return string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
end

local function stays(tenant, digits, kept)
  return tenant .. '/' .. digits == kept or held_for_a_run(tenant, digits)
end

local function oldest_leaf(kept, from)
  while true do
    local member = redis.call('ZRANGE', leaves, from, from)[1]
    if not member then
      return nil
    end
    local tenant, digits = split(member)
    if not stays(tenant, digits, kept) then
      return tenant, digits, from
    end
    from = from + 1
  end
end

local function leaf_of(tenant, root, kept)
  local tree = key('tree', tenant, root)
  local any = redis.call('SRANDMEMBER', tree)
  if not stays(tenant, any, kept) then
    return any
  end
  for _, digits in ipairs(redis.call('SMEMBERS', tree)) do
    if not stays(tenant, digits, kept) then
      return digits
    end
  end
end

local function leaf_of_oldest_tree(kept, from)
  while true do
    local member = redis.call('ZRANGE', trees, from, from)[1]
    if not member then
      return nil
    end
    local tenant, root = split(member)
    local digits = leaf_of(tenant, root, kept)
    if digits then
      return tenant, digits, from
    end
    from = from + 1
  end
end

-- Take turns away until no more than so many responses, trees and bytes are stored, at most `budget` of them: 'ok',
-- 'again' when that was not enough, or 'full' when all that is left has to stay.
local function make_room(most_responses, most_trees, most_bytes, budget, kept)
  local leaf_rank, tree_rank = 0, 0
  while budget > 0 do
    local responses_now, trees_now, bytes_now = stored(usage, leaves)
    local tenant, digits
    if trees_now > most_trees then
      tenant, digits, tree_rank = leaf_of_oldest_tree(kept, tree_rank)
    elseif responses_now > most_responses or bytes_now > most_bytes then
      tenant, digits, leaf_rank = oldest_leaf(kept, leaf_rank)
    else
      return 'ok'
    end
    if not tenant then
      return 'full'
    end
    budget = budget - take(tenant, digits, budget)
  end
  return 'again'
end
