-- Shared by the scripts that ask for what most shards have nothing of.
-- Invariant: what a call finds nothing of it adds nothing to.

-- Whether the shard has neither an archive nor trees of which one lacks something (unarchived.lua): one question, not two.
local known_plain

local function begin_plain()
  known_plain = nil
end

local function is_plain()
  if known_plain == nil then
    known_plain = call('EXISTS', shard_key('archive'), shard_key('unarchived')) == 0
  end
  return known_plain
end
