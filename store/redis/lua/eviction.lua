-- Shared by the scripts that make room: which turn is evicted next.
-- Invariant: the least recently used leaf goes first; where there are too many trees, the least recently used tree that
-- no run uses, with all its turns. What a run has pinned stays, and so do `kept`, which is about to be continued, and its
-- tree; so all above them stays too. A tree goes whole or not at all: once it is chosen it is unknown, like one that was
-- forgotten (abandon.lua), and what this call leaves of it goes with later ones, or with a sweep.
--
-- Ranks below `from` were checked in this call and have to stay. That stays true while others go: a leaf enters with
-- a score no lower than that of the child that made room for it.

local LOOKS = 500 -- the most turns and trees that have to stay which one call passes over: a millisecond or two

-- The member of `uses` with the lowest score that may go, from a rank on: its tenant, its digits and its rank; a rank
-- alone where that takes another call; nothing where there is none.
local function oldest(uses, family, kept, from)
  for rank = from, from + LOOKS do
    local member = redis.call('ZRANGE', uses, rank, rank)[1]
    if not member then
      return nil
    end
    local tenant, digits = split(member)
    if member ~= kept and not held_for_a_run(family, tenant, digits)
      and not (family == 'runs' and has_jobs(tenant, digits)) then
      return tenant, digits, rank
    end
  end
  return nil, nil, from + LOOKS + 1
end

-- A tree that is unknown already: its tenant and its digits. It stands before all others, and is in no rank.
local function unknown_tree()
  local member, used = unpack(redis.call('ZRANGE', trees, 0, 0, 'WITHSCORES'))
  if used == '0' then
    return split(member)
  end
end

-- Take turns away until the new turn, of the tree `root`, fits below the caps and no more than `most_bytes` are left, but
-- at most `budget` of them: 'ok', 'again' when that was not enough, or 'full' when all that is left has to stay; and the
-- ranks from which the next call continues.
local function make_room(root, most_bytes, leaf_rank, tree_rank)
  local most_responses = max_responses > 0 and max_responses - 1 or math.huge
  local most_trees = max_trees > 0 and max_trees - (parent == '' and 1 or 0) or math.huge
  most_bytes = math.min(most_bytes, max_bytes > 0 and max_bytes - room or math.huge)
  local kept, kept_tree, left = tenant .. '/' .. parent, tenant .. '/' .. root, budget
  while left > 0 do
    local responses_now, trees_now, bytes_now = stored(usage, leaves)
    local tenant, digits, rank
    if trees_now > most_trees then
      tenant, digits = unknown_tree()
      rank = tree_rank
      if not digits then
        tenant, digits, rank = oldest(trees, 'runs', kept_tree, tree_rank)
        tree_rank = rank
      end
      if digits then
        redis.call('ZADD', trees, 0, tenant .. '/' .. digits)
      end
      digits = digits and redis.call('SRANDMEMBER', key('tree', tenant, digits))
    elseif responses_now > most_responses or bytes_now > most_bytes then
      tenant, digits, rank = oldest(leaves, 'pins', kept, leaf_rank)
      leaf_rank = rank
    else
      return 'ok', leaf_rank, tree_rank
    end
    if not rank then
      return 'full', 0, 0
    elseif not digits then
      return 'again', leaf_rank, tree_rank
    end
    left = left - take(tenant, digits, left)
  end
  return 'again', leaf_rank, tree_rank
end
