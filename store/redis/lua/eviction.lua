-- Shared by the scripts that make room: which turn is evicted next.
-- Invariant: it is the least recently used leaf of the tenant that gives room (shares.lua). Where there are too many trees,
-- it is the least recently used tree of those LOOKS whose tenant has more than its share, with all its turns. What a run
-- has pinned stays, and so do `kept`, which is about to be continued, and its tree; so all above them stays too. A tree goes
-- whole or not at all: once it is chosen it is unknown, like one that was forgotten (abandon.lua), and what this call leaves
-- of it goes with later ones, or with a sweep.
--
-- `stays` has the rank below which a tenant's leaves were checked and have to stay, and the first tree to look at is that of
-- `tree_rank`. That stays true while others go: a leaf enters with a score no lower than that of the child that made room
-- for it.

local evicted = {} -- how many turns went, by what there was too much of

-- What went, as `responses=3 bytes=1`.
local function told_of_evicted()
  local told = {}
  for field, turns in pairs(evicted) do
    told[#told + 1] = field .. '=' .. turns
  end
  return table.concat(told, ' ')
end

-- The tree that goes next: its tenant and its digits, and the rank from which the search goes on. One that is unknown
-- already stands before all others. Neither digits nor a rank where there is none.
local function next_tree(need, kept_tree, tree_rank)
  local member, used = unpack(redis.call('ZRANGE', trees, 0, 0, 'WITHSCORES'))
  if used == '0' then
    local name, root = split(member)
    return name, root, tree_rank
  end
  local giver, is_over = sharing(need)

  local function may_go(name, root)
    return name .. '/' .. root ~= kept_tree and not held_for_a_run('runs', name, root) and not has_jobs(name, root)
  end

  local own
  for rank = tree_rank, tree_rank + LOOKS do
    member = redis.call('ZRANGE', trees, rank, rank)[1]
    if not member then
      return tenant, own, own and tree_rank
    end
    local name, root = split(member)
    if is_over(name) and may_go(name, root) then
      return name, root, rank
    elseif name == tenant and not own and may_go(name, root) then
      own = root
    end
  end
  local name = giver({}) -- all its trees are behind so many others: that of its first leaf goes
  for _, digits in ipairs(name and redis.call('ZRANGE', leaves_of(name), 0, LOOKS / 5) or {}) do
    local root = redis.call('HGET', key('node', name, digits), 'root')
    if root and may_go(name, root) then
      return name, root, tree_rank
    end
  end
  return tenant, own, own and tree_rank or tree_rank + LOOKS + 1
end

-- Take turns away until the new turn, of the tree `root`, fits below the caps and no more than `most_bytes` are left, but
-- at most `budget` of them: 'ok', 'again' when that was not enough, or 'full' when all that may go is gone; and the rank
-- of the tree from which the next call goes on. `stays` is updated for it.
local function make_room(root, most_bytes, stays, tree_rank)
  most_bytes = math.min(most_bytes, max_bytes > 0 and max_bytes - room or math.huge)

  -- What there is too much of: its counter, its limit, and what the turn adds that needs the room. Nil if there is room.
  local function needed()
    local responses_now, trees_now, bytes_now = stored(usage)
    local added = parent == '' and 1 or 0
    if max_trees > 0 and trees_now + added > max_trees then
      return { field = 'trees', limit = max_trees, adds = added }
    elseif max_responses > 0 and responses_now + 1 > max_responses then
      return { field = 'responses', limit = max_responses, adds = 1 }
    elseif bytes_now > most_bytes then
      return { field = 'bytes', limit = most_bytes + room - former_leaves() * LEAF_BYTES, adds = room }
    end
  end

  local need = needed()
  if not need then
    return 'ok', tree_rank
  end
  local kept, kept_tree, left = tenant .. '/' .. parent, tenant .. '/' .. root, budget

  -- The least recently used leaf of a tenant that may go, its digits and its turn; and how many may still be looked at.
  local function oldest_leaf(name, looks)
    local own, rank = leaves_of(name), stays[name] or 0
    while looks > 0 do
      looks = looks - 1
      local found, score = unpack(redis.call('ZRANGE', own, rank, rank, 'WITHSCORES'))
      if not found then
        stays[name] = ALL
        return nil, nil, looks
      end
      local turn = turn_of(name, found)
      if turn.children ~= '0' or turn.deleted then
        displace_leaf(name, found)
      elseif turn.touched ~= score then
        redis.call('ZADD', own, turn.touched, found)
      elseif name .. '/' .. found ~= kept and not held_for_a_run('pins', name, found) then
        return found, turn, looks
      else
        rank = rank + 1
        stays[name] = rank
      end
    end
    return nil, nil, 0
  end

  -- The leaf that goes next: its tenant, its digits and its turn. Without one, whether that takes another call.
  local function next_leaf()
    if former_leaves() == 0 and not next(stays)
      and redis.call('ZRANGE', usage .. ':' .. need.field, -1, -1)[1] == tenant then
      local found, turn = oldest_leaf(tenant, LOOKS) -- nobody has more, as the turn is counted besides
      if found then
        return tenant, found, turn
      end
    end
    local giver, is_over = sharing(need)
    local name, found, turn, looks = nil, nil, nil, LOOKS
    if former_leaves() > 0 then
      name, found, turn, looks = adopting().oldest(is_over, kept, stays)
    end
    while not found and looks > 0 do
      name = giver(stays)
      if not name then
        return nil, false
      end
      found, turn, looks = oldest_leaf(name, looks)
    end
    return found and name, found or true, turn
  end

  while need and left > 0 do
    record(usage) -- who gives room is chosen by what is counted
    if former_leaves() > 0 and not adopting().counters() then
      return 'again', tree_rank
    end
    local name, found, turn
    if need.field == 'trees' then
      name, found, tree_rank = next_tree(need, kept_tree, tree_rank)
      if found then
        redis.call('ZADD', trees, 0, name .. '/' .. found)
        found = redis.call('SRANDMEMBER', key('tree', name, found))
      end
      found = found or tree_rank and true
    else
      name, found, turn = next_leaf()
      if not found and need.field == 'bytes' then
        name, found, turn = unneeded_tombstone()
      end
    end
    if not found then
      return 'full', 0
    elseif found == true then
      return 'again', tree_rank
    end
    local taken, field = take(name, found, left, turn), need.field
    evicted[field] = (evicted[field] or 0) + taken
    left = left - taken
    need = needed()
  end
  return need and 'again' or 'ok', tree_rank
end
