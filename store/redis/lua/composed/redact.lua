#!lua flags=allow-oom
local node = KEYS[1]; local messages = KEYS[2]; local response = KEYS[3]; local usage = KEYS[4]; local leaves = KEYS[5]; local trees = KEYS[6]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local redactions = ARGV[4]; local idle_us = tonumber(ARGV[5]); local messages_blob = ARGV[6]; local response_blob = ARGV[7]
local seldom, defined_0
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local function next_score(clock)
  local next_one = (string.format('%.0f', now_us))
  local last = redis.call('SET', clock, next_one, 'GET')
  if last and tonumber(last) >= tonumber(next_one) then
    next_one = (string.format('%.0f', (last + 1)))
    redis.call('SET', clock, next_one)
  end
  return next_one
end
local function gone(tenant, root, idle_us)
  local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us - idle_us or redis.call('EXISTS', (shard .. 'archive')) == 1) then
    return false
  end
  return used == 0 or not seldom('outlasts')(tenant, root)
end
local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local function note_logged(bytes)
  local total = redis.call('INCRBY', (shard .. 'logged'), (string.format('%.0f', bytes)))
  if total == 0 then
    redis.call('DEL', (shard .. 'logged'))
  end
  return total
end


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

local root, deleted, erased, before, held, log_bytes = unpack(redis.call('HMGET', node, 'root', 'deleted', 'erased',
  'redactions', 'held', 'log_bytes'))
if not root or gone(tenant, root, idle_us) then
  return { 'missing' }
elseif redis.call('EXISTS', (turns .. tenant .. ':' .. 'job' .. ':' .. digits)) == 1 then
  return { 'running' }
end
local place = deleted and (turns .. tenant .. ':' .. 'remains' .. ':' .. digits) or response
if (before or '') ~= redactions or (erased and not before) or redis.call('EXISTS', place) == 0 then
  return { 'changed' }
end
redis.call('MSET', messages, messages_blob, place, response_blob)
redis.call('HSET', node, 'erased', 1, 'redactions', (before or 0) + 1, 'messages_bytes', #messages_blob,
  'response_bytes', deleted and 0 or #response_blob)
redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'has_erased', 1)
if log_bytes then
  redis.call('HDEL', node, 'log_bytes')
  do
    local tenant, digits, log_bytes = tenant, digits, log_bytes
    redis.call('UNLINK', (turns .. tenant .. ':' .. 'log' .. ':' .. digits), (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
    redis.call('ZREM', (shard .. 'logs'), tenant .. '/' .. digits)
    note_logged(0 - log_bytes)
    do
      local tenant, digits, payload = tenant, digits, 'gone'
      redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'events' .. ':' .. digits), payload)
    end
  end
end
do
  local tenant, root, member, score = tenant, root, '+' .. digits, next_score((shard .. 'clock'))
  local after = not plain and redis.call('GET', (shard .. 'archive'))
  if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
    and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
    redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
  end
end
local holds_now = ((redis.call('MEMORY', 'USAGE', node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', messages, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', place, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
redis.call('HSET', node, 'held', holds_now)
do
  local tenant, field, change = tenant, 'bytes', holds_now - (held or 0)
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
return { 'ok' }
