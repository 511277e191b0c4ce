#!lua flags=allow-oom,no-writes
local usage = KEYS[1]; local leaves = KEYS[2]; local turns = ARGV[1]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local LEVELS = 4
local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local function stored()
  local bytes = counted.bytes + (plain and 0 or former * LEAF_BYTES + redis.call('ZCARD', (shard .. 'unarchived')) * NOTED_BYTES) + counted.trees * TREE_BYTES
  return counted.responses, counted.trees, bytes
end

local counts, oldest = {}, now_ms
for level = 0, LEVELS - 1 do
  local queued = ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or ''))
  counts[#counts + 1] = redis.call('ZCARD', queued)
  oldest = math.min(oldest, redis.call('ZRANGE', queued, 0, 0, 'WITHSCORES')[2] or oldest)
end
local responses, _, bytes = stored()
for _, count in ipairs({ math.max(0, now_ms - oldest), redis.call('ZCARD', (shard .. 'leases')), (tonumber(redis.call('GET', (shard .. 'logged')) or 0)),
  redis.call('ZCARD', (shard .. 'outbox')), responses, bytes }) do
  counts[#counts + 1] = count
end
return { 'ok', unpack(counts) }
