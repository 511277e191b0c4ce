--- include choosing
--- include room
-- Shared by the scripts that make room: which turn is evicted next.
-- Arguments: budget  the most turns that this call removes
-- Invariant: it is the least recently used leaf of the tenant that gives room (choosing.lua). Where there are too many trees,
-- it is the least recently used tree of those LOOKS whose tenant has more than its share, with all its turns. What a run
-- has pinned stays, and so do `kept`, which is about to be continued, and its tree; so all above them stays too. A tree goes
-- whole or not at all: once it is chosen it is unknown, like one that was forgotten (abandon.lua), and what this call leaves
-- of it goes with later ones, or with a sweep.
--
-- `stays` has the rank below which a tenant's leaves were checked and have to stay, and the first tree to look at is that of
-- `tree_rank`. That stays true while others go: a leaf enters with a score no lower than that of the child that made room.

-- The first leaf of the tenant that needs the room, its digits and its turn, where nobody has more, as the turn is counted
-- besides, and that leaf may go. It is what nearly always goes, so it is found without what all other cases take, and loses its
-- place as it is found.
local function first_of_own(field)
  if field == 'trees' or call('ZRANGE', usage .. ':' .. field, '-1', '-1')[1] ~= tenant then
    return nil
  end
  local order = leaves_of(tenant)
  local found, score = unpack(call('ZPOPMIN', order))
  local turn = found and found ~= parent and turn_of(tenant, found)
  if turn and turn.children == '0' and not turn.deleted and turn.touched == score
    and not is_held(tenant, found, turn) then
    turn.is_displaced = true
    count(tenant, 'bytes', -LEAF_BYTES)
    return found, turn
  elseif found then
    call('ZADD', order, score, found)
  end
end

-- Take turns away until the new turn, of the tree `root`, fits below the caps and no more than `most_bytes` are left, but
-- at most `budget` of them: 'ok', 'again' when that was not enough, 'full' when all that may go is gone, or 'unarchived' when
-- more may go once the archive has it; and the rank of the tree from which the next call goes on. `stays` is updated for it.
local function evict_until(root, most_bytes, stays, tree_rank)
  local next_one, left = nil, budget
  local field, limit, adds = needed(most_bytes)
  while field and left > 0 do
    record() -- who gives room is chosen by what is counted
    local name, found, turn = tenant, nil, nil
    if not next(stays) then
      found, turn = first_of_own(field)
    end
    if not found then
      next_one = next_one or choosing(root, stays)
      name, found, turn, tree_rank = next_one(field, limit, adds, tree_rank)
    end
    if not found or found == 'unarchived' then
      return found or 'full', 0
    elseif found == true then
      return 'again', tree_rank
    end
    local taken = take(name, found, left, turn)
    evicted[field] = (evicted[field] or 0) + taken
    left = left - taken
    field, limit, adds = needed(most_bytes)
  end
  return field and 'again' or 'ok', tree_rank
end

-- Make room for the new turn, of the tree `root`: the word that evict_until says.
local function make_room(root)
  return needed(most_before()) and evict_until(root, most_before(), {}, 0) or 'ok'
end
