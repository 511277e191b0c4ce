-- Shared by the scripts that make names of keys themselves, from `turns`, with which all keys of turns in a shard begin.

local function key(family, tenant, digits)
  return turns .. tenant .. ':' .. family .. ':' .. digits
end

local function shard_key(name)
  return string.sub(turns, 1, -#'t:' - 1) .. name
end

-- The tenant and the digits of a member TENANT/DIGITS.
local function split(member)
  local slash = string.find(member, '/', 1, true)
  return string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
end
