#!lua flags=allow-oom
local usage = KEYS[1]; local leaves = KEYS[2]; local trees = KEYS[3]; local turns = ARGV[1]; local kept_ms = tonumber(ARGV[2]); local budget = tonumber(ARGV[3])
local shard = string.sub(turns, 1, -#'t:' - 1)

local function split(member)
  local slash = string.find(member, '/', 1, true)
  return string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
end
local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local CONVERSATION_MARK = '636f6e766572'

local function note_logged(bytes)
  local total = redis.call('INCRBY', (shard .. 'logged'), (string.format('%.0f', bytes)))
  if total == 0 then
    redis.call('DEL', (shard .. 'logged'))
  end
  return total
end

local function held_for_a_run(family, tenant, digits)
  local pins = (turns .. tenant .. ':' .. family .. ':' .. digits)
  return redis.call('EXISTS', pins) == 1 and (redis.call('ZCOUNT', pins, '(' .. now_ms, '+inf') > 0)
end

local function leave(tenant, digits, root, touched)
  local node = (turns .. tenant .. ':' .. 'node' .. ':' .. digits)
  local children, own, deleted = unpack(redis.call('HMGET', node, 'children', 'touched', 'deleted'))
  if children ~= '1' then
    redis.call('HINCRBY', node, 'children', '-1')
    return false
  end
  if tonumber(own) < tonumber(touched) then
    own = touched
  end
  redis.call('HSET', node, 'children', '0', 'touched', own)
  if deleted then
    do
      local tenant, digits, unpinned = tenant, digits, (redis.call('ZRANGE', ((turns .. tenant .. ':' .. 'pins' .. ':' .. digits)), -1, -1, 'WITHSCORES')[2] or 0)
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
  else
    do
      local tenant, digits, score = tenant, digits, own
      do
        local tenant, field, change = tenant, 'bytes', LEAF_BYTES * redis.call('ZADD', (leaves .. ':' .. tenant), score, digits)
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
  redis.call('SADD', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), digits)
  return deleted and not held_for_a_run('pins', tenant, digits)
end

local function turn_of(tenant, digits)
  local root, parent, deleted, held, touched, log_bytes, children, awaits = unpack(redis.call('HMGET',
    (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits'))
  return { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
    children = children, awaits = awaits }
end

local function remove(tenant, digits, turn)
  turn = turn or turn_of(tenant, digits)
  local node, root, parent = (turns .. tenant .. ':' .. 'node' .. ':' .. digits), turn.root, turn.parent
  local messages, response = (turns .. tenant .. ':' .. 'messages' .. ':' .. digits), (turns .. tenant .. ':' .. 'response' .. ':' .. digits)
  local pins, tree = (turns .. tenant .. ':' .. 'pins' .. ':' .. digits), (turns .. tenant .. ':' .. 'tree' .. ':' .. root)
  do
    local tenant, digits, deleted = tenant, digits, turn.deleted
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
  if not turn.deleted and (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) then
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
  do
    local tenant, field, change = tenant, turn.deleted and 'tombstones' or 'responses', -1
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  do
    local tenant, field, change = tenant, 'bytes', -(turn.held or 0)
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  if turn.log_bytes then
    do
      local tenant, digits, log_bytes = tenant, digits, turn.log_bytes
      redis.call('UNLINK', (turns .. tenant .. ':' .. 'log' .. ':' .. digits), (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
      redis.call('ZREM', (shard .. 'logs'), tenant .. '/' .. digits)
      note_logged(0 - log_bytes)
      do
        local tenant, digits, payload = tenant, digits, 'gone'
        redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'events' .. ':' .. digits), payload)
      end
    end
  end
  if parent == '' then
    redis.call('UNLINK', node, messages, response, pins, tree, (turns .. tenant .. ':' .. 'runs' .. ':' .. digits))
    do
      local tenant, digits, turn = tenant, digits, turn
      if turn.deleted then
        redis.call('UNLINK', (turns .. tenant .. ':' .. 'remains' .. ':' .. digits))
      end
    end
    do
      local tenant, root = tenant, digits
      redis.call('ZREM', trees, tenant .. '/' .. root)
      do
        local tenant, field, change = tenant, 'bytes', -INDEXED_BYTES * redis.call('ZREM', (trees .. ':' .. tenant), root)
        local own = owned[tenant]
        if not own then
          own = { responses = 0, bytes = 0 }
          owned[tenant] = own
        end
        own[field] = (own[field] or 0) + change
        counted[field] = counted[field] + change
      end
    end
    do
      local tenant, field, change = tenant, 'trees', -1
      local own = owned[tenant]
      if not own then
        own = { responses = 0, bytes = 0 }
        owned[tenant] = own
      end
      own[field] = (own[field] or 0) + change
      counted[field] = counted[field] + change
    end
    return '', false
  end
  redis.call('UNLINK', node, messages, response, pins)
  do
    local tenant, digits, turn = tenant, digits, turn
    if turn.deleted then
      redis.call('UNLINK', (turns .. tenant .. ':' .. 'remains' .. ':' .. digits))
    end
  end
  local unneeded = leave(tenant, parent, root, turn.touched)
  redis.call('SREM', tree, digits)
  return parent, unneeded
end

local function take(tenant, digits, budget, turn)
  for taken = 1, budget do
    local parent, unneeded = remove(tenant, digits, turn)
    if not unneeded then
      return taken
    end
    digits, turn = parent, nil
  end
  return budget
end
local function end_log(tenant, digits)
  local node = (turns .. tenant .. ':' .. 'node' .. ':' .. digits)
  local log_bytes, fleeting = unpack(redis.call('HMGET', node, 'log_bytes', 'fleeting'))
  redis.call('HDEL', node, 'log_bytes')
  do
    local tenant, digits, log_bytes = tenant, digits, log_bytes or 0
    redis.call('UNLINK', (turns .. tenant .. ':' .. 'log' .. ':' .. digits), (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
    redis.call('ZREM', (shard .. 'logs'), tenant .. '/' .. digits)
    note_logged(0 - log_bytes)
    do
      local tenant, digits, payload = tenant, digits, 'gone'
      redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'events' .. ':' .. digits), payload)
    end
  end
  if fleeting then
    take(tenant, digits, 1)
  end
end


local late = redis.call('ZRANGE', (shard .. 'logs'), '-inf', now_ms - kept_ms, 'BYSCORE', 'LIMIT', 0, budget)
for _, member in ipairs(late) do
  end_log(split(member))
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
return { #late == budget and 'again' or 'ok' }
