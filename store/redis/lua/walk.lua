-- Shared by the scripts that follow a turn to its root.
--
-- Every PATH_TURNS turns down a chain, a node has a `path`: the digits of the PATH_TURNS turns above it, newest first. It
-- never goes stale, as a turn's parent never changes and is never removed before it. So 1,000 turns take some 60 look-ups.

local PATH_TURNS = 32

local function has_path(depth)
  return depth > PATH_TURNS and depth % PATH_TURNS == 1
end

local function path_from(tenant, parent)
  local found = { parent }
  for at = 2, PATH_TURNS do
    found[at] = call('HGET', key('node', tenant, found[at - 1]), 'parent')
  end
  return table.concat(found)
end

-- The digits of a turn and of all above it, newest first, in one string: a thousand replies would cost more than the walk. A
-- turn that is not there means that somebody else deleted keys: better no chain than one with a hole.
local function walk(tenant, digits, depth)
  local found, last = { digits }, digits
  while depth > 1 do
    local above = call('HGET', key('node', tenant, last), has_path(depth) and 'path' or 'parent')
    if not above then
      error('BROKEN the chain of ' .. digits .. ' has no turn ' .. last)
    end
    found[#found + 1] = above
    last = string.sub(above, -#digits)
    depth = depth - #above / #digits
  end
  return table.concat(found)
end
