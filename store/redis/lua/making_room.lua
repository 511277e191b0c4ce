--- include room
--- include eviction
-- Shared by the scripts that add a turn.
-- Invariant: that of eviction.lua, which most calls don't need.

-- Make room for the new turn, of the tree `root`: the word that evict_until says.
local function make_room(root)
  return needed(most_before()) and evict_until(root, most_before(), {}, 0) or 'ok'
end
