--- include clock
--- include plain
-- Shared by the scripts that add or remove turns: the counters of a shard and of each tenant in it, and how many
-- bytes the server holds for it.
-- Invariant: a counter equals what is stored; a tenant with nothing stored has none. A script that counts has to
-- record it before it returns: its eviction subtracts most of what an append adds.
--
-- The shard's counters are fields of `usage`. Those of tenants are scores in usage:FIELD, so that who has most is found at
-- once. `bytes` counts the keys of each turn (held.lua), noted in the node as `held`; LEAF_BYTES for each place in the order
-- of eviction; LISTED_BYTES for each conversation in a list; and INDEXED_BYTES for each tree among those of its tenant
-- (places.lua). A tree takes TREE_BYTES more: a tenant's `bytes` have them, and `stored` adds them to the shard's. They are
-- measured (tests/store/history/test_account.py compares the sum with the server). `stored` adds NOTED_BYTES too, for each
-- tree of which an archive lacks something (unarchived.lua): what one or two changes take, and no tenant is counted.

local LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 195, 135, 155, 290, 480

-- The shard's counters, with what this call has changed so far; and by how much it changed those of each tenant, as far as
-- that is not recorded yet.
local known_counters, owned

local function begin_usage()
  known_counters, owned = nil, {}
end

local function counted()
  if not known_counters then
    local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')
    known_counters = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
      trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
  end
  return known_counters
end

local function count(tenant, field, change)
  local own, numbers = owned[tenant], counted()
  if not own then
    own = { responses = 0, bytes = 0 } -- nearly all turns change both
    owned[tenant] = own
  end
  own[field] = (own[field] or 0) + change
  numbers[field] = numbers[field] + change
end

-- A counter of a tenant has changed by so much.
local function note_own(tenant, field, change)
  if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
    redis.call('ZREM', usage .. ':' .. field, tenant)
  end
end

local function record()
  local changed, numbers = {}, next(owned) and counted()
  for tenant, own in pairs(owned) do
    for field, change in pairs(own) do
      local in_all = field == 'bytes' and change + (own.trees or 0) * TREE_BYTES or change
      if in_all ~= 0 then
        note_own(tenant, field, in_all)
      end
      if change ~= 0 and numbers[field] == 0 then
        redis.call('HDEL', usage, field)
      elseif change ~= 0 then
        changed[#changed + 1], changed[#changed + 2] = field, numbers[field]
      end
    end
  end
  if changed[1] then
    redis.call('HSET', usage, unpack(changed))
  end
  owned = {}
end

-- The bytes of the shard that its counter doesn't have, but for those of trees.
local function uncounted()
  return is_plain() and 0 or redis.call('ZCARD', shard_key('unarchived')) * NOTED_BYTES
end

-- The responses, the trees and the bytes of the shard.
local function stored()
  local numbers = counted()
  return numbers.responses, numbers.trees, numbers.bytes + uncounted() + numbers.trees * TREE_BYTES
end
