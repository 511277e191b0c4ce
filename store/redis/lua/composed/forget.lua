#!lua flags=allow-oom
local node = KEYS[1]; local messages = KEYS[2]; local response = KEYS[3]; local pins = KEYS[4]; local usage = KEYS[5]; local leaves = KEYS[6]; local trees = KEYS[7]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local token = ARGV[4]; local idle_us = tonumber(ARGV[5]); local erase = ARGV[6]; local no_messages = ARGV[7]
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
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local CONVERSATION_MARK = '636f6e766572'

local PATH_TURNS = 32

local function walk(tenant, digits, depth)
  local found, last = { digits }, digits
  while depth > 1 do
    local above = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. last), (depth > PATH_TURNS and depth % PATH_TURNS == 1) and 'path' or 'parent')
    if not above then
      error('BROKEN the chain of ' .. digits .. ' has no turn ' .. last)
    end
    found[#found + 1] = above
    last = string.sub(above, -#digits)
    depth = depth - #above / #digits
  end
  return table.concat(found)
end
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

local turn = redis.call('HMGET', node, 'root', 'deleted', 'children', 'depth', 'held', 'erased', 'log_bytes',
  'messages_bytes')
local root, deleted, children, depth, held, erased, log_bytes, messages_bytes = unpack(turn)
if not root or gone(tenant, root, idle_us) then
  return { 'missing', '' }
elseif redis.call('EXISTS', (turns .. tenant .. ':' .. 'job' .. ':' .. digits)) == 1 then
  return { 'running', '' }
end
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
if not deleted then
  redis.call('HSET', node, 'deleted', token, 'response_bytes', 0)
  local listed = children ~= '0' and redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'named') == 1
  if listed and redis.call('EXISTS', response) == 1 then
    redis.call('RENAME', response, (turns .. tenant .. ':' .. 'remains' .. ':' .. digits))
  else
    redis.call('UNLINK', response)
  end
  do
    local tenant, field, change = tenant, 'responses', -1
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  do
    local tenant, field, change = tenant, 'tombstones', 1
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  if (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) then
    do
      local tenant, digits = tenant, digits
      do
        local tenant, field, change = tenant, 'bytes', -LISTED_BYTES * redis.call('ZREM', ((shard .. ('conversations:' .. tenant))), digits)
        local own = owned[tenant]
        if not own then
          own = { responses = 0, bytes = 0 }
          owned[tenant] = own
        end
        own[field] = (own[field] or 0) + change
        counted[field] = counted[field] + change
      end
    end
  end
end
local remains = (turns .. tenant .. ':' .. 'remains' .. ':' .. digits)
local erases = erase == '1'
  and (not erased or tonumber(messages_bytes) > #no_messages or redis.call('EXISTS', remains) == 1)
if erases then
  redis.call('UNLINK', remains)
  redis.call('SET', messages, no_messages)
  redis.call('HSET', node, 'erased', 1, 'messages_bytes', #no_messages)
  redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'has_erased', 1)
end
if erases or not deleted then
  local holds_now = ((redis.call('MEMORY', 'USAGE', node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', messages, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', remains, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
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
end
if erases or not deleted then
  do
    local tenant, root, member, score = tenant, root, (erases and 'x' or '-') .. digits, next_score((shard .. 'clock'))
    local after = not plain and redis.call('GET', (shard .. 'archive'))
    if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
      and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
      redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
    end
  end
  redis.call('ZREM', ((shard .. ('changes:' .. tenant .. '/' .. root))), '+' .. digits)
end
local path = ''
if children == '0' then
  do
    local tenant, digits, deleted = tenant, digits, deleted
    local gone
    if deleted then
      gone = redis.call('ZREM', (shard .. 'tombstones'), tenant .. '/' .. digits)
    else
      gone = redis.call('ZREM', (leaves .. ':' .. tenant), digits)
    end
    do
      local tenant, field, change = tenant, 'bytes', -LEAF_BYTES * gone
      local own = owned[tenant]
      if not own then
        own = { responses = 0, bytes = 0 }
        owned[tenant] = own
      end
      own[field] = (own[field] or 0) + change
      counted[field] = counted[field] + change
    end
    do
      local tenant, digits = tenant, digits
      if former > 0 then
        former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
      end
    end
  end
  do
    local tenant, digits, unpinned = tenant, digits, (redis.call('ZRANGE', pins, -1, -1, 'WITHSCORES')[2] or 0)
    local added = redis.call('ZADD', (shard .. 'tombstones'), unpinned, tenant .. '/' .. digits)
    do
      local tenant, field, change = tenant, 'bytes', LEAF_BYTES * added
      local own = owned[tenant]
      if not own then
        own = { responses = 0, bytes = 0 }
        owned[tenant] = own
      end
      own[field] = (own[field] or 0) + change
      counted[field] = counted[field] + change
    end
  end
  path = walk(tenant, digits, tonumber(depth))
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
if deleted and deleted ~= token then
  return { 'deleted', path }
end
return { 'ok', path }
