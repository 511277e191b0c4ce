--- include held
-- Shared by the scripts that add turns, change them or take them away: which turn of a tenant ends with which words.
-- Invariant: `said` of a node is the digest of all that was said up to the end of the turn (store/turn.py), and the hash
-- said:TENANT has its first bytes with the digits of the turn, as bytes. A turn has `said` where that names it, and only there:
-- so of turns with the same words the newest alone has it. A turn that was deleted, or lost a message or an item, has none.

local WORDS_BYTES = 92 -- what both take, as held.lua counts: 88 in Valkey 9, and 97 in Redis 7
local WORDS_LENGTH = 16 -- of a digest, as store/turn.py has it

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
  return shard_key('said:' .. tenant), string.sub(said, 1, 8)
end

-- Whether a turn that began at `created` has these words from now on, as no newer one has them. One that had them has none.
local function say(tenant, digits, said, created)
  if said == '' then
    return false
  end
  local index, name = entry_of(tenant, said)
  local named = redis.call('HGET', index, name)
  local before = named and digits_of(named)
  if before and before ~= digits then
    local node = key('node', tenant, before)
    local its, since, held = unpack(redis.call('HMGET', node, 'said', 'created', 'held'))
    if its and (tonumber(since) or 0) > tonumber(created) then
      return false
    elseif its then
      redis.call('HDEL', node, 'said')
      note_held(tenant, before, held or 0, (held or 0) - WORDS_BYTES)
    end
  end
  redis.call('HSET', index, name, bytes_of(digits))
  redis.call('HSET', key('node', tenant, digits), 'said', said)
  return true
end

-- A turn that had these words has none from now on; its node says so, or goes.
local function unsay(tenant, digits, said)
  local index, name = entry_of(tenant, said)
  if redis.call('HGET', index, name) == bytes_of(digits) then
    redis.call('HDEL', index, name)
  end
end
