-- Shared by the scripts that add or remove turns: the counters of a shard and of each tenant in it, and how many
-- bytes the server holds for it.
-- Invariant: a counter equals what is stored; a tenant with nothing stored has no fields. A script that counts has to
-- record it before it returns: its eviction subtracts most of what an append adds.
--
-- `bytes` counts what MEMORY USAGE says of the keys of each turn, noted in the node as `held` when they were written,
-- and KEY_BYTES for each key's share of the tables. What all trees share grows with the leaves and the trees: LEAF_BYTES
-- and TREE_BYTES for each, as measured (tests/store/history/test_account.py compares the sum with the server).

local KEY_BYTES, LEAF_BYTES, TREE_BYTES = 16, 195, 320

local changes, more_leaves, began = {}, 0, nil

local function count(tenant, field, change)
  local own = field .. '/' .. tenant
  changes[field] = (changes[field] or 0) + change
  changes[own] = (changes[own] or 0) + change
end

local function record(usage)
  for field, change in pairs(changes) do
    if change ~= 0 and redis.call('HINCRBY', usage, field, change) == 0 then
      redis.call('HDEL', usage, field)
    end
  end
end

local function held_by(key)
  local bytes = redis.call('MEMORY', 'USAGE', key, 'SAMPLES', 0)
  return bytes and bytes + KEY_BYTES or 0
end

-- The responses, the trees and the bytes of the shard, as they were when this call began and with what it changed.
local function stored(usage, leaves)
  if not began then
    began = redis.call('HMGET', usage, 'responses', 'trees', 'bytes')
    began[4] = redis.call('ZCARD', leaves) - more_leaves
  end
  local responses = (tonumber(began[1]) or 0) + (changes.responses or 0)
  local trees = (tonumber(began[2]) or 0) + (changes.trees or 0)
  local bytes = (tonumber(began[3]) or 0) + (changes.bytes or 0)
  return responses, trees, bytes + (began[4] + more_leaves) * LEAF_BYTES + trees * TREE_BYTES
end
