--- include held
-- Shared by the scripts that add turns, change them or take them away: which turn of a tenant ends with which words.
-- Invariant: `said` of a node is the digest of all that was said up to the end of the turn (store/turn.py). The hash said:TENANT
-- has, under the first bytes of that, the digits of the turn; or '#' and how many turns said so, where another one did, too,
-- since the first of them: then nobody can tell whose turn is meant, and none is found until the last has gone.
-- A turn that was deleted, or lost a message or an item, has no `said`. One that has `said`, and a child that can be
-- continued, is `continued`, also once that is gone or in the archive: whoever says the same words again may be another one.

local WORDS_BYTES = 116 -- what both take, as held.lua counts: 104 in Valkey 9, and 129 in Redis 7
local WORDS_LENGTH = 16 -- of a digest, as store/turn.py has it
local WORDS_NAME = 8 -- the bytes of it that name it in the index

local function hex_of(bytes)
  return string.format(string.rep('%02x', #bytes), string.byte(bytes, 1, -1))
end

-- The key of a tenant's index, and the field of a digest in it; the node has the rest of that.
local function entry_of(tenant, said)
  return shard_key('said:' .. tenant), string.sub(said, 1, WORDS_NAME)
end

-- How many turns an entry counts; nil for the digits that name its only turn.
local function count_of(entry)
  return tonumber(string.match(entry, '^#(.+)'))
end

-- The index has a turn whose node has these words from now on, and had none.
local function say(tenant, digits, said)
  local index, name = entry_of(tenant, said)
  if call('HSETNX', index, name, digits) == 0 then
    call('HSET', index, name, '#' .. (count_of(call('HGET', index, name)) or 1) + 1)
  end
end

-- A turn that had these words has none from now on; its node says so, or goes.
local function unsay(tenant, digits, said)
  local index, name = entry_of(tenant, said)
  local entry = call('HGET', index, name)
  local left = entry and (count_of(entry) or 1) - 1
  if left == 0 then
    call('HDEL', index, name)
  elseif left then
    call('HSET', index, name, '#' .. left)
  end
end
