--- include clock
-- Shared by the scripts that add or remove turns: the counters of a shard and of each tenant in it, and how many
-- bytes the server holds for it.
-- Invariant: a counter equals what is stored; a tenant with nothing stored has none. A script that counts has to
-- record it before it returns: its eviction subtracts most of what an append adds.
--
-- The shard's counters are fields of `usage`. Those of tenants are scores in usage:FIELD, so that who has most is found at
-- once. `bytes` counts the keys of each turn (held.lua), noted in the node as `held`; LEAF_BYTES for each place in the order
-- of eviction; LISTED_BYTES for each conversation in a list; and TREE_BYTES for each tree, by its place among those of its
-- tenant (places.lua). They are measured (tests/store/history/test_account.py compares the sum with the server). `stored` adds
-- NOTED_BYTES for each tree of which an archive lacks something (unarchived.lua): what one or two changes take, and no tenant
-- is counted. The field `archive` is no counter (noting.lua), and is read with them.

local LEAF_BYTES, LISTED_BYTES, TREE_BYTES, NOTED_BYTES = 195, 135, 445, 480

-- The shard's counters as they are recorded, and by how much this call changed those of each tenant since.
local recorded, owned

local function begin_usage()
  recorded, owned = nil, {}
end

local function counted()
  if not recorded then
    local responses, tombstones, trees, bytes, archive = unpack(call('HMGET', shard_key('usage'), 'responses', 'tombstones',
      'trees', 'bytes', 'archive'))
    recorded = { responses = responses or 0, tombstones = tombstones or 0, trees = trees or 0, bytes = bytes or 0,
      archive = archive }
  end
  return recorded
end

-- After how many ms a changed tree is archived; nil where the shard has no archive.
local function archive_after()
  return counted().archive
end

local function count(tenant, field, change)
  local own = owned[tenant]
  if not own then
    own = {}
    owned[tenant] = own
  end
  own[field] = (own[field] or 0) + change
end

local function record()
  local changed, numbers = {}, next(owned) and counted()
  for tenant, own in pairs(owned) do
    for field, change in pairs(own) do
      if change ~= 0 then
        numbers[field] = numbers[field] + change
        changed[#changed + 1], changed[#changed + 2] = field, numbers[field]
        local ranks = shard_key('usage:' .. field)
        if call('ZINCRBY', ranks, change, tenant) == '0' then
          call('ZREM', ranks, tenant)
        end
      end
    end
  end
  if changed[1] then
    call('HSET', shard_key('usage'), unpack(changed)) -- of a field that several tenants changed the last number counts
  end
  owned = {}
end

-- The bytes of the shard that its counter doesn't have.
local function uncounted()
  return archive_after() and call('ZCARD', shard_key('unarchived')) * NOTED_BYTES or 0
end

-- The responses, the trees and the bytes of the shard.
local function stored()
  local numbers = counted()
  local responses, trees, bytes = numbers.responses, numbers.trees, numbers.bytes + uncounted()
  for _, own in pairs(owned) do
    responses, trees, bytes = responses + (own.responses or 0), trees + (own.trees or 0), bytes + (own.bytes or 0)
  end
  return tonumber(responses), tonumber(trees), bytes
end
