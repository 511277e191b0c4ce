--- include usage
-- Shared by the scripts that make room for a turn: whether it is needed, and what gave it.
-- Arguments: parent         the parent's digits, or '' for a root
--            room           the most bytes that the server may hold for the turn
--            max_responses  the most responses in the shard; 0: any number
--            max_trees      the most trees in the shard; 0: any number
--            max_bytes      the most bytes that the server may hold for the shard; 0: any number
-- Invariant: the counters are those of this moment, with what this call has changed.

local evicted -- how many turns went, by what there was too much of

local function begin_room()
  evicted = {}
end

-- The count of evicted turns, as `responses=3 bytes=1`.
local function told_of_evicted()
  local told = {}
  for field, turns in pairs(evicted) do
    told[#told + 1] = field .. '=' .. turns
  end
  return table.concat(told, ' ')
end

-- The reply of a script that has made room, or tried to. What it has counted is recorded.
local function reply_with_evicted(word)
  record()
  return { word, told_of_evicted() }
end

-- The passed cap: its counter, its limit, and the addition of the turn that needs the room. Nothing if there is room.
local function needed(most_bytes)
  local responses_now, trees_now, bytes_now = stored()
  local added = parent == '' and 1 or 0
  if max_trees > 0 and trees_now + added > max_trees then
    return 'trees', max_trees, added
  elseif max_responses > 0 and responses_now + 1 > max_responses then
    return 'responses', max_responses, 1
  elseif bytes_now > most_bytes then
    return 'bytes', most_bytes + room - uncounted(), room
  end
end

-- The most bytes that may be left for the new turn to fit below the cap.
local function most_before()
  return max_bytes > 0 and max_bytes - room or math.huge
end
