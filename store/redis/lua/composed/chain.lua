#!lua flags=allow-oom
local node = KEYS[1]; local pins = KEYS[2]; local clock = KEYS[3]; local leaves = KEYS[4]; local trees = KEYS[5]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local pin = ARGV[4]; local pin_ms = tonumber(ARGV[5]); local max_depth = tonumber(ARGV[6]); local max_messages = tonumber(ARGV[7]); local max_bytes = tonumber(ARGV[8]); local max_held = tonumber(ARGV[9]); local under_way = ARGV[10]; local idle_us = tonumber(ARGV[11]); local not_after = tonumber(ARGV[12])
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
local now_ms = math.floor(now_us / 1000)

local CONVERSATION_MARK = '636f6e766572'

local PATH_TURNS = 32


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

if pin ~= '' and now_ms > not_after then
  return { 'late', (string.format('%.0f', now_ms)) }
end
local turn = redis.call('HMGET', node, 'root', 'deleted', 'continuable', 'status', 'depth', 'chain_messages',
  'chain_bytes', 'chain_held')
local root, deleted, continuable, status, depth, chain_messages, chain_bytes, chain_held = unpack(turn)
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
if continuable ~= '1' and under_way ~= '1' then
  return { 'status', status }
end
local long = tonumber(depth) >= max_depth or tonumber(chain_bytes) >= max_bytes
  or (max_messages > 0 and tonumber(chain_messages) >= max_messages)
  or (max_held > 0 and tonumber(chain_held or 0) >= max_held)
if pin ~= '' and long then
  return { 'long' }
end
local ids
do
  local tenant, digits, depth = tenant, digits, tonumber(depth)
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
  ids = table.concat(found)
end
do
  local root = root
  local score
  do
    local clock = clock
    local next_one = (string.format('%.0f', now_us))
    local last = redis.call('SET', clock, next_one, 'GET')
    if last and tonumber(last) >= tonumber(next_one) then
      next_one = (string.format('%.0f', (last + 1)))
      redis.call('SET', clock, next_one)
    end
    score = next_one
  end
  redis.call('HSET', node, 'touched', score)
  redis.call('ZADD', leaves .. ':' .. tenant, 'XX', score, digits)
  do
    local tenant, root, score = tenant, root, score
    redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
    redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
  end
end
if pin ~= '' then
  local tip = (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) and redis.call('HGET', node, 'parent')
  do
    local pins, pin, pin_ms = tip and (turns .. tenant .. ':' .. 'pins' .. ':' .. tip) or pins, pin, pin_ms
    redis.call('ZADD', pins, now_ms + pin_ms, pin)
    local left = redis.call('PTTL', pins)
    if left ~= -1 then
      redis.call('ZREMRANGEBYSCORE', pins, '-inf', now_ms)
    end
    if left < pin_ms then
      redis.call('PEXPIRE', pins, pin_ms)
    end
  end
  do
    local pins, pin, pin_ms = (turns .. tenant .. ':' .. 'runs' .. ':' .. root), pin, pin_ms
    redis.call('ZADD', pins, now_ms + pin_ms, pin)
    local left = redis.call('PTTL', pins)
    if left ~= -1 then
      redis.call('ZREMRANGEBYSCORE', pins, '-inf', now_ms)
    end
    if left < pin_ms then
      redis.call('PEXPIRE', pins, pin_ms)
    end
  end
end
local erased = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'has_erased') or ''
return { 'ok', ids, erased }
