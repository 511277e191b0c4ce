#!lua
local node = KEYS[1]; local job = KEYS[2]; local usage = KEYS[3]; local leaves = KEYS[4]; local trees = KEYS[5]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local id = ARGV[4]; local said = ARGV[5]; local most = tonumber(ARGV[6]); local most_bytes = tonumber(ARGV[7]); local idle_us = tonumber(ARGV[8])
local seldom, defined_0
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local function gone(tenant, root, idle_us)
  local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us - idle_us or redis.call('EXISTS', (shard .. 'archive')) == 1) then
    return false
  end
  return used == 0 or not seldom('outlasts')(tenant, root)
end
local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}


function seldom(name)
  if not defined_0 then
    local turns = ARGV[1]
    local MOST_LEAVES = 10000
    local CONVERSATIONS = '??636f6e766572*'

    local function conversation_in(tenant, root)
      if redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'named') == 0 then
        return nil
      end
      local cursor, seen = '0', 0
      repeat
        local page = redis.call('SSCAN', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), cursor, 'MATCH', CONVERSATIONS, 'COUNT', 1000)
        for _, digits in ipairs(page[2]) do
          if redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'deleted') == 0 then
            return digits
          end
        end
        cursor, seen = page[1], seen + 1000
      until cursor == '0' or seen >= MOST_LEAVES
      return cursor ~= '0' or nil
    end

    local function outlasts(tenant, root)
      return (redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'jobs') == 1) or conversation_in(tenant, root)
    end

    defined_0 = { outlasts = outlasts }
  end
  return defined_0[name]
end

local root, deleted, status, known, held =
  unpack(redis.call('HMGET', node, 'root', 'deleted', 'status', 'steers', 'held'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
local epoch, token, steerable, steers, bytes =
  unpack(redis.call('HMGET', job, 'epoch', 'token', 'steerable', 'steers', 'steer_bytes'))
if string.find(known or steers or '', id, 1, true) then
  return { 'ok' }
elseif not epoch or status == 'cancelled' then
  return { 'ended', status }
elseif not steerable then
  return { 'unsteerable' }
end
local _, before = string.gsub(steers or '', '%S+', '')
if before >= most or (bytes or 0) + #said > most_bytes then
  return { 'many' }
end
local held_before = ((redis.call('MEMORY', 'USAGE', job, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
redis.call('HSET', job, 'steers', steers and steers .. ' ' .. id or id, 'steer_bytes', (bytes or 0) + #said,
  'said:' .. id, said)
local grown = ((redis.call('MEMORY', 'USAGE', job, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) - held_before
redis.call('HSET', node, 'held', (string.format('%.0f', (held + grown))))
do
  local tenant, field, change = tenant, 'bytes', grown
  local own = owned[tenant]
  if not own then
    own = { responses = 0, bytes = 0 }
    owned[tenant] = own
  end
  own[field] = (own[field] or 0) + change
  counted[field] = counted[field] + change
end
do
  local changed = {}
  for tenant, own in pairs(owned) do
    own.bytes = own.bytes + (own.trees or 0) * TREE_BYTES
    for field, change in pairs(own) do
      if change ~= 0 then
        do
          local tenant, field, change = tenant, field, change
          if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
            redis.call('ZREM', usage .. ':' .. field, tenant)
          end
        end
        if counted[field] == 0 then
          redis.call('HDEL', usage, field)
        else
          changed[#changed + 1], changed[#changed + 2] = field, counted[field]
        end
      end
    end
  end
  if changed[1] then
    redis.call('HSET', usage, unpack(changed))
  end
  owned = {}
end
if token ~= '' then
  do
    local word = 'steered ' .. tenant .. '/' .. digits
    redis.call('SPUBLISH', (shard .. 'control'), word)
  end
end
return { 'ok' }
