-- Shared by the scripts that add or remove turns: the counters of a shard and of each tenant in it, and how many
-- bytes the server holds for it.
-- Invariant: a counter equals what is stored; a tenant with nothing stored has none. A script that counts has to
-- record it before it returns: its eviction subtracts most of what an append adds.
--
-- The shard's counters are fields of `usage`. Those of tenants are scores in usage:FIELD, so that who has most is found at
-- once. `bytes` counts what MEMORY USAGE says of the keys of each turn, noted in the node as `held` when they were written,
-- with KEY_BYTES for each key's share of the tables; LEAF_BYTES for each place in the order of eviction (leaves.lua); and
-- LISTED_BYTES for each conversation in a list (listed.lua); and INDEXED_BYTES for each tree among those of its tenant
-- (trees.lua). A tree takes TREE_BYTES more: a tenant's `bytes` have them, and `stored` adds them to the shard's. They are
-- measured (tests/store/history/test_account.py compares the sum with the server). `stored` adds NOTED_BYTES too, for each
-- tree of which an archive lacks something (unarchived.lua): what one or two changes take, and no tenant is counted.

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local changes, owned, began = {}, {}, nil

local function count(tenant, field, change)
  local own = owned[tenant]
  if not own then
    own = { responses = 0, bytes = 0 } -- nearly all turns change both
    owned[tenant] = own
  end
  own[field] = (own[field] or 0) + change
  changes[field] = (changes[field] or 0) + change
end

-- A counter of a tenant has changed by so much.
local function note_own(tenant, field, change)
  if change ~= 0 and redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
    redis.call('ZREM', usage .. ':' .. field, tenant)
  end
end

local function record(usage)
  if not next(owned) then
    return
  end
  for field, change in pairs(changes) do
    if change ~= 0 and redis.call('HINCRBY', usage, field, change) == 0 then
      redis.call('HDEL', usage, field)
    end
    if began and began[field] then
      began[field] = began[field] + change
    end
  end
  for tenant, own in pairs(owned) do
    if own.trees then
      own.bytes = own.bytes + own.trees * TREE_BYTES
    end
    for field, change in pairs(own) do
      note_own(tenant, field, change)
    end
  end
  changes, owned = {}, {}
end

local function held_by(key)
  local bytes = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', '0')
  return bytes and bytes + KEY_BYTES or 0
end

-- The bytes of the shard that its counter doesn't have, but for those of trees.
local function uncounted()
  return former_leaves() * LEAF_BYTES + redis.call('ZCARD', shard_key('unarchived')) * NOTED_BYTES
end

-- The responses, the trees and the bytes of the shard, as they were when this call began and with what it changed.
local function stored(usage)
  if not began then
    local noted = redis.call('HMGET', usage, 'responses', 'trees', 'bytes')
    began = { responses = tonumber(noted[1]) or 0, trees = tonumber(noted[2]) or 0, bytes = tonumber(noted[3]) or 0 }
  end
  local trees = began.trees + (changes.trees or 0)
  local bytes = began.bytes + (changes.bytes or 0)
  return began.responses + (changes.responses or 0), trees,
    bytes + uncounted() + trees * TREE_BYTES
end
