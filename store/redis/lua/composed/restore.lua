#!lua
local node = KEYS[1]; local messages = KEYS[2]; local response = KEYS[3]; local clock = KEYS[4]; local usage = KEYS[5]; local leaves = KEYS[6]; local trees = KEYS[7]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local parent = ARGV[4]; local status = ARGV[5]; local continuable = ARGV[6]; local digest = ARGV[7]; local added = tonumber(ARGV[8]); local created = tonumber(ARGV[9]); local used = tonumber(ARGV[10]); local tree_used = tonumber(ARGV[11]); local deleted = ARGV[12]; local erased = ARGV[13]; local background = ARGV[14]; local submission = ARGV[15]; local held = tonumber(ARGV[16]); local wait_ms = tonumber(ARGV[17]); local archived = ARGV[18]; local fence_ms = tonumber(ARGV[19]); local max_responses = tonumber(ARGV[20]); local max_trees = tonumber(ARGV[21]); local max_bytes = tonumber(ARGV[22]); local messages_blob = ARGV[23]; local response_blob = ARGV[24]
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
local now_ms = math.floor(now_us / 1000)

local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local CONVERSATION_MARK = '636f6e766572'

local function was_deleted(tenant, root, digits)
  if redis.call('EXISTS', ((shard .. ('fence:' .. tenant .. '/' .. digits))), ((shard .. ('fence:' .. tenant .. '/' .. ('*' .. root))))) > 0 then
    return true
  end
  local noted = ((shard .. ('changes:' .. tenant .. '/' .. root)))
  return redis.call('ZSCORE', noted, '-' .. digits) or redis.call('ZSCORE', noted, 'x' .. digits)
    or redis.call('ZSCORE', noted, '*' .. root)
end
local PATH_TURNS = 32


local function tree_use(root)
  return tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
end

local now = tonumber(next_score(clock))
local function later_use(before)
  return (string.format('%.0f', (math.max(before, math.min(tree_used, now)))))
end

local stored_digest, is_deleted, children, stored_root = unpack(redis.call('HMGET', node, 'digest', 'deleted', 'children',
  'root'))
if stored_root and tree_use(stored_root) == 0 then
  return { 'forgotten', stored_root }
elseif stored_digest and stored_digest ~= digest then
  return { 'conflict' }
elseif stored_digest then
  do
    local tenant, root, score = tenant, stored_root, later_use(tree_use(stored_root))
    redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
    redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
  end
  if is_deleted and children == '0' then
    do
      local tenant, digits, unpinned = tenant, digits, now_ms + wait_ms
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
  end
  return { is_deleted and deleted == '' and 'deleted' or 'kept' }
end
local from = { root = digits, depth = 1, messages = 0, bytes = 0, held = 0 }
local before = 0
if parent ~= '' then
  local above = redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. parent), 'root', 'depth', 'deleted', 'chain_messages',
    'chain_bytes', 'chain_held')
  before = above[1] and tree_use(above[1]) or 0
  if before == 0 then
    return { 'missing' }
  end
  from = { root = above[1], depth = above[2] + 1, deleted = above[3], messages = above[4], bytes = above[5],
    held = above[6] or 0 }
end
if archived ~= '' then
  if not (redis.call('EXISTS', (shard .. 'archive')) == 1) or now_ms > archived + fence_ms
    or (deleted == '' and was_deleted(tenant, from.root, digits)) then
    return { 'outdated' }
  end
end
local responses_now, trees_now, bytes_now
do
  local bytes = counted.bytes + (plain and 0 or former * LEAF_BYTES + redis.call('ZCARD', (shard .. 'unarchived')) * NOTED_BYTES) + counted.trees * TREE_BYTES
  responses_now, trees_now, bytes_now = counted.responses, counted.trees, bytes
end
if (max_responses > 0 and deleted == '' and responses_now >= max_responses)
  or (max_trees > 0 and parent == '' and trees_now >= max_trees)
  or (max_bytes > 0 and bytes_now + held > max_bytes) then
  return { 'full' }
end

used = math.min(used, now)
do
  local tenant, parent, from, score = tenant, parent, from, (string.format('%.0f', used))
  redis.call('MSET', messages, messages_blob, response, response_blob)
  redis.call('HSET', node, 'parent', parent, 'root', from.root, 'depth', from.depth, 'children', '0', 'status', status,
    'continuable', continuable, 'digest', digest, 'created', (string.format('%.0f', now_us)), 'touched', score,
    'messages_bytes', #messages_blob, 'response_bytes', #response_blob, 'chain_messages', from.messages + added,
    'chain_bytes', from.bytes + #messages_blob, 'held', '0', 'chain_held', '0')
  if (from.depth > PATH_TURNS and from.depth % PATH_TURNS == 1) then
    local path
    do
      local tenant, parent = tenant, parent
      local found = { parent }
      for at = 2, PATH_TURNS do
        found[at] = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. (found[at - 1])), 'parent')
      end
      path = table.concat(found)
    end
    redis.call('HSET', node, 'path', path)
  end
  do
    local tenant, root, score = tenant, from.root, score
    redis.call('ZADD', trees, score, tenant .. '/' .. root)
    do
      local tenant, field, change = tenant, 'bytes', INDEXED_BYTES * redis.call('ZADD', (trees .. ':' .. tenant), score, root)
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
    local tenant, field, change = tenant, 'responses', 1
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  if parent == '' then
    do
      local tenant, field, change = tenant, 'trees', 1
      local own = owned[tenant]
      if not own then
        own = { responses = 0, bytes = 0 }
        owned[tenant] = own
      end
      own[field] = (own[field] or 0) + change
      counted[field] = counted[field] + change
    end
  elseif redis.call('HINCRBY', (turns .. tenant .. ':' .. 'node' .. ':' .. parent), 'children', '1') == 1 then
    do
      local tenant, digits, deleted = tenant, parent, from.deleted
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
    redis.call('SREM', (turns .. tenant .. ':' .. 'tree' .. ':' .. from.root), parent)
  end
end
do
  local tenant, root, score = tenant, from.root, later_use(math.max(before, used))
  redis.call('ZADD', trees, score, tenant .. '/' .. root)
  do
    local tenant, field, change = tenant, 'bytes', INDEXED_BYTES * redis.call('ZADD', (trees .. ':' .. tenant), score, root)
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
end
redis.call('HSET', node, 'created', (string.format('%.0f', created)))
if background ~= '' then
  redis.call('HSET', node, 'background', background, 'submission', submission)
end
if (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) then
  redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. from.root), 'named', 1)
end
if erased ~= '' then
  redis.call('HSET', node, 'erased', 1, 'chain_bytes', (string.format('%.0f', (from.bytes + erased))))
  redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. from.root), 'has_erased', 1)
  if deleted == '' then
    redis.call('HSET', node, 'redactions', 1)
  end
end
if deleted ~= '' then
  redis.call('HSET', node, 'deleted', 'backup', 'response_bytes', 0)
  redis.call('UNLINK', response)
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
  do
    local tenant, digits, unpinned = tenant, digits, now_ms + wait_ms
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
    local tenant, digits, score = tenant, digits, (string.format('%.0f', used))
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
  if (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) then
    do
      local tenant, digits, created = tenant, digits, (string.format('%.0f', created))
      do
        local tenant, field, change = tenant, 'bytes', LISTED_BYTES * redis.call('ZADD', ((shard .. ('conversations:' .. tenant))), created, digits)
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
do
  local tenant, from, held = tenant, from, ((redis.call('MEMORY', 'USAGE', node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', messages, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', response, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
  redis.call('HSET', node, 'held', held, 'chain_held', (string.format('%.0f', (from.held + held))))
  do
    local tenant, field, change = tenant, 'bytes', held
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
end
redis.call('SADD', (turns .. tenant .. ':' .. 'tree' .. ':' .. from.root), digits)
if archived == '' then
  do
    local tenant, root, member, score = tenant, from.root, '+' .. digits, next_score(clock)
    local after = not plain and redis.call('GET', (shard .. 'archive'))
    if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
      and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
      redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
    end
  end
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
