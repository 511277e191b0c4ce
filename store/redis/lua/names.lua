-- Shared by all scripts: what keys are called (store/keys.py).
--
-- `turns` is what all keys of turns in the shard begin with, and a script about one turn has its `tenant` and its `digits`.
-- The keys that its declaration lists (store/redis/scripts.py) are locals, too: those of the turn by their families, those of its
-- shard by their names.
--
-- An argument of several scripts is described here, or in a file that they include. Of a turn that is stored:
--
-- Arguments: status         the status of its response
--            continuable    1 if that status may be continued, else 0
--            digest         the digest of its content
--            added          how many messages it adds
--            messages_blob  what to store under messages
--            response_blob  what to store under response
--            said           the digest of all that was said up to its end (said.lua), or ''

local function key(family, tenant, digits)
  return turns .. tenant .. ':' .. family .. ':' .. digits
end

local shard -- what all keys of the shard begin with

local function begin_names()
  shard = string.sub(turns, 1, -#'t:' - 1)
end

local function shard_key(name)
  return shard .. name
end

-- The tenant and the digits of a member TENANT/DIGITS.
local function split(member)
  local slash = string.find(member, '/', 1, true)
  return string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
end
