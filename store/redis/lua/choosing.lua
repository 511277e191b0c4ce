--- include idle
--- include orders
--- include removal
--- include using
-- Shared by the scripts that make room: what goes next where it isn't simply the first leaf of the tenant that needs the room
-- (eviction.lua), and which tenant gives it. Most calls don't get here; what one finds out is kept within two functions.
-- Invariant: that of eviction.lua. A tenant's share of a cap is the cap, divided by the tenants that have something of it. Room
-- is given by the tenant that has most, if that is more than its share, with what is to be stored counted to the one that needs
-- the room. One whose turns all have to stay is passed over for the next. Where nobody is left who has more than a share, or many
-- were passed over, it is the one itself that needs the room; so nobody with no more than a share gives anything to another one.

local ALL = -1 -- instead of a rank: all that this tenant has was checked and has to stay

-- Of a counter that would pass its limit by what the turn adds: a function that says which tenant gives room, or nil where
-- all that may have to stay, given the ranks or ALL of those looked at before; and one that says whether a tenant has more
-- than its share.
local function sharing(field, limit, adds)
  local TIED = 5 -- the most tenants with the same number whose leaves are compared
  local PASSED = 100 -- the most tenants that are passed over for one turn
  local counted = usage .. ':' .. field
  local own, tenants = tonumber(call('ZSCORE', counted, tenant) or nil), call('ZCARD', counted)
  local share = limit / (own and tenants or tenants + 1)
  own = (own or 0) + adds

  -- Of some tenants with the same number the one whose first leaf was used least recently. Of many, others for each turn.
  local function least_recent(names, number, stays)
    local tied = #names >= TIED and call('ZCOUNT', counted, number, number) or 0
    if tied > #names then
      local from = tonumber(string.sub(digits, -6), 16) % (tied - TIED + 1)
      names = call('ZRANGE', counted, number, number, 'BYSCORE', 'LIMIT', from, TIED)
    end
    local found, least
    for _, name in ipairs(names) do
      local used = tonumber(call('ZRANGE', leaves_of(name), 0, 0, 'WITHSCORES')[2] or nil)
      if stays[name] ~= ALL and name ~= tenant and (not found or (used and used < least)) then
        found, least = name, used or math.huge
      end
    end
    return found
  end

  local function giver(stays)
    local passed = 0
    for _, rank in pairs(stays) do
      passed = passed + (rank == ALL and 1 or 0)
    end
    local itself = stays[tenant] ~= ALL and tenant or nil
    if passed > PASSED then
      return itself
    end
    local most, names = itself and own or -math.huge, {}
    local page = call('ZRANGE', counted, 0, passed + TIED, 'REV', 'WITHSCORES')
    for at = 1, #page, 2 do
      local name, number = page[at], tonumber(page[at + 1])
      if name ~= tenant and stays[name] ~= ALL and number > share
        and (number > most or (names[1] and number == most)) then
        most, names[#names + 1] = number, name
      end
    end
    return names[2] and least_recent(names, most, stays) or names[1] or itself
  end

  local known = { [tenant] = own > share }
  local function is_over(name)
    if known[name] == nil then
      known[name] = (tonumber(call('ZSCORE', counted, name) or nil) or 0) > share
    end
    return known[name]
  end

  return giver, is_over
end

-- Of LOOKS, how many pass over turns that the archive lacks and has soon. Turns used later are hardly there before,
-- so a few of these are enough to know that there is no room yet; else a full shard would be looked through for each turn.
local LOOKS_OF_UNARCHIVED = 20

-- A function that chooses the next turn to go, for a turn of the tree `root`; it updates `stays`.
local function choosing(root, stays)
  local kept, kept_tree = tenant .. '/' .. parent, tenant .. '/' .. root
  local is_behind = false -- whether an archive has to be waited for

  -- The tree that goes next: its tenant and its digits, and the rank from which the search goes on. One that is unknown
  -- already stands before all others. Neither digits nor a rank where there is none.
  local function next_tree(giver, is_over, tree_rank)
    local member, used = unpack(call('ZRANGE', trees, 0, 0, 'WITHSCORES'))
    if used == '0' then
      local name, root = split(member)
      return name, root, tree_rank
    end

    local looks = LOOKS
    local function may_go(name, root)
      if name .. '/' .. root == kept_tree or held_for_a_run('runs', name, root) or has_jobs(name, root) then
        return false
      end
      local lacks, soon = has_unarchived(name, root)
      if lacks and soon then
        is_behind, looks = true, looks - LOOKS_OF_UNARCHIVED
      end
      return not lacks
    end

    local own
    for rank = tree_rank, tree_rank + LOOKS do
      member = looks > 0 and call('ZRANGE', trees, rank, rank)[1]
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
    for _, digits in ipairs(name and call('ZRANGE', leaves_of(name), 0, LOOKS / 5) or {}) do
      local root = call('HGET', key('node', name, digits), 'root')
      if root and may_go(name, root) then
        return name, root, tree_rank
      end
    end
    return tenant, own, own and tree_rank or tree_rank + LOOKS + 1
  end

  -- The least recently used leaf of a tenant that may go, its digits and its turn; and how many may still be looked at.
  local function oldest_leaf(name, looks)
    local own, rank = leaves_of(name), stays[name] or 0
    while looks > 0 do
      looks = looks - 1
      local found, score = unpack(call('ZRANGE', own, rank, rank, 'WITHSCORES'))
      if not found then
        stays[name] = ALL
        return nil, nil, looks
      end
      local turn = turn_of(name, found)
      if turn.children ~= '0' or turn.deleted then
        displace_leaf(name, found)
      elseif turn.touched ~= score then
        call('ZADD', own, turn.touched, found)
      else
        local held, soon = name .. '/' .. found == kept, false
        if not held then
          held, soon = is_held(name, found, turn)
        end
        if not held then
          return found, turn, looks
        elseif soon then
          is_behind, looks = true, looks - LOOKS_OF_UNARCHIVED
        end
        rank = rank + 1
        stays[name] = rank
      end
    end
    return nil, nil, 0
  end

  -- The leaf that goes next: its tenant, its digits and its turn. Without one, true if another call may find one, and
  -- 'unarchived' if one may go once it is.
  local function next_leaf(giver)
    local name, found, turn, looks = nil, nil, nil, LOOKS
    while not found and looks > 0 do
      name = giver(stays)
      if not name then
        return nil, is_behind and 'unarchived'
      end
      found, turn, looks = oldest_leaf(name, looks)
    end
    return found and name, found or is_behind and 'unarchived' or true, turn
  end

  -- The turn that goes next: its tenant, its digits, what is known of it, and the rank of the next tree to look at. Instead
  -- of digits true where that takes another call, 'unarchived' where the archive has to have it first, and nothing where
  -- all has to stay.
  return function(field, limit, adds, tree_rank)
    local giver, is_over = sharing(field, limit, adds)
    local name, found, turn
    if field == 'trees' then
      name, found, tree_rank = next_tree(giver, is_over, tree_rank)
      if found then
        use_tree(name, found, 0)
        found = call('SRANDMEMBER', key('tree', name, found))
      end
      return name, found or tree_rank and true or is_behind and 'unarchived', nil, tree_rank
    end
    name, found, turn = next_leaf(giver)
    if not found and field == 'bytes' then
      name, found, turn = unneeded_tombstone()
    end
    return name, found, turn, tree_rank
  end
end
