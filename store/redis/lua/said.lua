--- include held
-- Shared by the scripts that add turns, change them or take them away: which turn of a tenant ends with which words.
-- Invariant: `said` of a node is the digest of all that was said up to the end of the turn (store/turn.py). The hash said:TENANT
-- has, under the first bytes of that, the digits of the turn, as bytes; or '#' and how many turns said so, where another one
-- did, too, since the first of them: then nobody can tell whose turn is meant, and none is found until the last has gone.
-- A turn that was deleted, or lost a message or an item, has no `said`. One that has `said`, and a child that can be
-- continued, is `continued`, also once that is gone or in the archive: whoever says the same words again may be another one.

local WORDS_BYTES = 92 -- what both take, as held.lua counts: 88 in Valkey 9, and 97 in Redis 7
local WORDS_LENGTH = 16 -- of a digest, as store/turn.py has it
local WORDS_NAME = 8 -- the bytes of it that name it in the index

local function bytes_of(digits)
  return (string.gsub(digits, '%x%x', function(two)
    return string.char(tonumber(two, 16))
  end))
end

-- The digits that bytes of the index stand for; they name no turn where they are of another length.
local function digits_of(bytes)
  local some = string.sub(bytes, 1, 32)
  return string.format(string.rep('%02x', #some), string.byte(some, 1, -1))
end

-- The key of a tenant's index, and the field of a digest in it; the node has the rest of that.
local function entry_of(tenant, said)
  return shard_key('said:' .. tenant), string.sub(said, 1, WORDS_NAME)
end

-- How many turns an entry counts; nil for the 16 bytes that name its only turn.
local function count_of(entry)
  return #entry < 16 and tonumber(string.sub(entry, 2)) or nil
end

-- A turn has these words from now on; whether it takes WORDS_BYTES more for them.
local function say(tenant, digits, said)
  if said == '' then
    return false
  end
  local node, own = key('node', tenant, digits), bytes_of(digits)
  local index, name = entry_of(tenant, said)
  local entry, known = redis.call('HGET', index, name), redis.call('HGET', node, 'said')
  if not entry or entry == own then
    redis.call('HSET', index, name, own)
  elseif not known then
    redis.call('HSET', index, name, '#' .. (count_of(entry) or 1) + 1)
  end
  redis.call('HSET', node, 'said', said)
  return not known
end

-- A turn that had these words has none from now on; its node says so, or goes.
local function unsay(tenant, digits, said)
  local index, name = entry_of(tenant, said)
  local entry = redis.call('HGET', index, name)
  local left = entry and (count_of(entry) or 1) - 1
  if left == 0 then
    redis.call('HDEL', index, name)
  elseif left then
    redis.call('HSET', index, name, '#' .. left)
  end
end
