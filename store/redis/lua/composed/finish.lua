#!lua flags=allow-oom
local node = KEYS[1]; local messages = KEYS[2]; local response = KEYS[3]; local job = KEYS[4]; local spec = KEYS[5]; local clock = KEYS[6]; local usage = KEYS[7]; local leaves = KEYS[8]; local trees = KEYS[9]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local token = ARGV[4]; local status = ARGV[5]; local continuable = ARGV[6]; local digest = ARGV[7]; local added = tonumber(ARGV[8]); local after = ARGV[9]; local last = tonumber(ARGV[10]); local entry = ARGV[11]; local steers = ARGV[12]; local announced = ARGV[13]; local max_pending = tonumber(ARGV[14]); local spent = ARGV[15]; local messages_blob = ARGV[16]; local response_blob = ARGV[17]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local function holds(pins, pin)
  local expiry = pin ~= '' and redis.call('ZSCORE', pins, pin)
  return expiry and tonumber(expiry) > now_ms
end

local function awaited(tenant, digits)
  local job = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'awaits')
  return job and redis.call('EXISTS', (turns .. tenant .. ':' .. 'job' .. ':' .. job)) == 1 and job or nil
end

local function note_logged(bytes)
  local total = redis.call('INCRBY', (shard .. 'logged'), (string.format('%.0f', bytes)))
  if total == 0 then
    redis.call('DEL', (shard .. 'logged'))
  end
  return total
end

local ENTRY_BYTES = 32

local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local PATH_TURNS = 32

local function path_from(tenant, parent)
  local found = { parent }
  for at = 2, PATH_TURNS do
    found[at] = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. (found[at - 1])), 'parent')
  end
  return table.concat(found)
end

local function barred(tenant, conversation, parent, token)
  local node, pins = (turns .. tenant .. ':' .. 'node' .. ':' .. conversation), (turns .. tenant .. ':' .. 'pins' .. ':' .. conversation)
  local stands_at, deleted = unpack(redis.call('HMGET', node, 'parent', 'deleted'))
  if not stands_at or deleted then
    return 'gone'
  elseif stands_at ~= parent or ((redis.call('ZCOUNT', pins, '(' .. now_ms, '+inf') > 0) and not holds(pins, token))
    or (awaited(tenant, conversation) or token) ~= token then
    return 'moved'
  end
end

local function stand_at(tenant, conversation, digits, former, score)
  local node = (turns .. tenant .. ':' .. 'node' .. ':' .. conversation)
  local above = redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'depth', 'chain_messages', 'chain_bytes',
    'chain_held')
  local root, depth, own_bytes = above[1], above[2] + 1, redis.call('STRLEN', (turns .. tenant .. ':' .. 'messages' .. ':' .. conversation))
  redis.call('HSET', node, 'parent', digits, 'root', root, 'depth', depth, 'touched', score, 'chain_messages', above[3],
    'chain_bytes', above[4] + own_bytes)
  if (depth > PATH_TURNS and depth % PATH_TURNS == 1) then
    redis.call('HSET', node, 'path', path_from(tenant, digits))
  else
    redis.call('HDEL', node, 'path')
  end
  redis.call('HINCRBY', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'children', 1)
  redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'named', 1)
  if former ~= '' then
    redis.call('HINCRBY', (turns .. tenant .. ':' .. 'node' .. ':' .. former), 'children', -1)
  end
  do
    local tenant, digits, score = tenant, conversation, score
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
  redis.call('SADD', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), conversation)
  do
    local tenant, root, member, score = tenant, root, '+' .. conversation, score
    local after = not plain and redis.call('GET', (shard .. 'archive'))
    if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
      and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
      redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
    end
  end
  return above[5]
end

local MOST_DROPPED = 1000

local function drop_webhooks(...)
  redis.call('ZREM', (shard .. 'outbox'), ...)
  redis.call('ZREM', (shard .. 'outbox-ages'), ...)
  redis.call('HDEL', (shard .. 'outbox-tries'), ...)
end

local function announce(tenant, digits, status, max_pending)
  local ages, member = (shard .. 'outbox-ages'), tenant .. '/' .. digits .. '/' .. status
  redis.call('ZADD', (shard .. 'outbox'), 'NX', now_ms, member)
  redis.call('ZADD', ages, 'NX', now_ms, member)
  local over = math.min(redis.call('ZCARD', ages) - max_pending, MOST_DROPPED)
  if over <= 0 then
    return 0
  end
  drop_webhooks(unpack(redis.call('ZRANGE', ages, 0, over - 1)))
  return over
end
local MOST_SPENDERS, HOUR_US = 1000, 3600000000

local function ending_of(tenant, digits)
  local turn = { tenant = tenant, digits = digits, node = (turns .. tenant .. ':' .. 'node' .. ':' .. digits), job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits) }
  turn.mode, turn.root, turn.parent, turn.fleeting, turn.held, turn.digest, turn.status, turn.conversation =
    unpack(redis.call('HMGET', turn.node, 'background', 'root', 'parent', 'fleeting', 'held', 'digest', 'status', 'joins'))
  turn.written, turn.log_bytes, turn.snapshot_bytes, turn.steers =
    unpack(redis.call('HMGET', turn.job, 'last', 'log_bytes', 'snapshot_bytes', 'steers'))
  turn.kept = turn.mode == 'stream' or turn.fleeting
  return turn
end

local function not_to_end(turn, status, after, last, steers)
  if (turn.status == 'cancelled') ~= (status == 'cancelled') then
    return { 'illegal', turn.status }
  elseif last <= tonumber(turn.written) then
    return { 'written', turn.written }
  elseif turn.kept and after ~= '' and turn.written ~= after then
    return { 'behind', turn.written }
  elseif (turn.steers or '') ~= steers then
    return { 'steered' }
  end
end

local function end_job(turn, ended)
  local tenant, digits, node = turn.tenant, turn.digits, turn.node
  local messages, response = (turns .. tenant .. ':' .. 'messages' .. ':' .. digits), (turns .. tenant .. ':' .. 'response' .. ':' .. digits)
  local above_messages, above_bytes, above_held = 0, 0, 0
  if turn.parent ~= '' then
    local above = redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. turn.parent), 'chain_messages', 'chain_bytes', 'chain_held')
    above_messages, above_bytes, above_held = above[1], above[2], above[3] or 0
  end
  do
    local tenant, spent = tenant, ended.spent
    if spent ~= '' then
      local seconds, put_in, cached, put_out, reasoning, whose = string.match(spent, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
      local hour, field = (shard .. ('spent:' .. math.floor(now_us / HOUR_US))), tenant .. '/' .. whose
      local known = redis.call('HGET', hour, field)
      local fields = known and 1 or redis.call('HLEN', hour)
      if not known and fields >= MOST_SPENDERS then
        field = '//'
        known = redis.call('HGET', hour, field)
      end
      local requests = 1
      if known then
        local had = { string.match(known, '^(%d+) (%d+) (%d+) (%d+) (%d+)') }
        requests, put_in, cached = requests + (had[1] or 0), put_in + (had[2] or 0), cached + (had[3] or 0)
        put_out, reasoning = put_out + (had[4] or 0), reasoning + (had[5] or 0)
      end
      redis.call('HSET', hour, field, string.format('%.0f %.0f %.0f %.0f %.0f', requests, put_in, cached, put_out, reasoning))
      if fields == 0 then
        redis.call('PEXPIRE', hour, seconds * 1000)
      end
    end
  end
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
  redis.call('MSET', messages, ended.messages, response, ended.response)
  redis.call('HSET', node, 'status', ended.status, 'continuable', turn.fleeting and 0 or ended.continuable,
    'digest', ended.digest, 'touched', score, 'messages_bytes', #ended.messages, 'response_bytes', #ended.response,
    'chain_messages', above_messages + ended.added, 'chain_bytes', above_bytes + #ended.messages)
  if turn.steers then
    redis.call('HSET', node, 'steers', turn.steers)
  end

  if turn.kept then
    local grown = #ended.entry + ENTRY_BYTES - (turn.snapshot_bytes or 0)
    do
      local tenant, digits, last, blob = tenant, digits, ended.last, ended.entry
      local id = (string.format('%.0f', (last + 1)))
      redis.call('XADD', (turns .. tenant .. ':' .. 'log' .. ':' .. digits), id .. '-0', 'b', blob)
      do
        local tenant, digits, payload = tenant, digits, id .. ' ' .. blob
        redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'events' .. ':' .. digits), payload)
      end
    end
    redis.call('UNLINK', (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
    note_logged(grown)
    redis.call('HSET', node, 'log_bytes', (string.format('%.0f', (turn.log_bytes + grown))))
    redis.call('ZADD', (shard .. 'logs'), now_ms, tenant .. '/' .. digits)
  else
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
  redis.call('UNLINK', turn.job, (turns .. tenant .. ':' .. 'spec' .. ':' .. digits))
  redis.call('ZREM', (shard .. 'leases'), tenant .. '/' .. digits)

  local conversation = turn.conversation
  local joins = conversation and ended.continuable == '1'
  local why = joins and barred(tenant, conversation, turn.parent, digits) or ''
  if conversation then
    redis.call('HDEL', node, 'joins')
    redis.call('HDEL', (turns .. tenant .. ':' .. 'node' .. ':' .. conversation), 'awaits')
  end
  local holds_now = ((redis.call('MEMORY', 'USAGE', node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', messages, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', response, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
  redis.call('HSET', node, 'held', holds_now, 'chain_held', (string.format('%.0f', (above_held + holds_now))))
  do
    local tenant, field, change = tenant, 'bytes', holds_now - turn.held
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
  do
    local tenant, root, score = tenant, turn.root, score
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
  if not turn.fleeting then
    do
      local tenant, root, member, score = tenant, turn.root, '+' .. digits, score
      local after = not plain and redis.call('GET', (shard .. 'archive'))
      if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
        and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
        redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
      end
    end
  end
  if joins and why == '' then
    do
      local tenant, conversation, above_held = tenant, conversation, stand_at(tenant, conversation, digits, turn.parent, score)
      local node = (turns .. tenant .. ':' .. 'node' .. ':' .. conversation)
      local before = redis.call('HGET', node, 'held') or 0
      local held = ((redis.call('MEMORY', 'USAGE', node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', ((turns .. tenant .. ':' .. 'messages' .. ':' .. conversation)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
        + ((redis.call('MEMORY', 'USAGE', ((turns .. tenant .. ':' .. 'response' .. ':' .. conversation)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
      redis.call('HSET', node, 'held', held, 'chain_held', (string.format('%.0f', (above_held + held))))
      do
        local tenant, field, change = tenant, 'bytes', held - before
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
      local tenant, digits, score = tenant, digits, score
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
    redis.call('SADD', (turns .. tenant .. ':' .. 'tree' .. ':' .. turn.root), digits)
    local stands_at = conversation and redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. conversation), 'parent')
    if stands_at then
      do
        local tenant, conversation, above_held = tenant, conversation, redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. stands_at), 'chain_held') or 0
        local node = (turns .. tenant .. ':' .. 'node' .. ':' .. conversation)
        local before = redis.call('HGET', node, 'held') or 0
        local held = ((redis.call('MEMORY', 'USAGE', node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', ((turns .. tenant .. ':' .. 'messages' .. ':' .. conversation)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
          + ((redis.call('MEMORY', 'USAGE', ((turns .. tenant .. ':' .. 'response' .. ':' .. conversation)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
        redis.call('HSET', node, 'held', held, 'chain_held', (string.format('%.0f', (above_held + held))))
        do
          local tenant, field, change = tenant, 'bytes', held - before
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
  if redis.call('HINCRBY', (turns .. tenant .. ':' .. 'node' .. ':' .. turn.root), 'jobs', -1) == 0 then
    redis.call('HDEL', (turns .. tenant .. ':' .. 'node' .. ':' .. turn.root), 'jobs')
  end
  return why
end

local turn = ending_of(tenant, digits)
if not (redis.call('HGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'token') == token) then
  return { turn.mode and turn.digest == digest and 'ok' or 'lost', 0, '' }
end
local refusal = not_to_end(turn, status, after, last, steers)
if refusal then
  return refusal
end
local why = end_job(turn, { status = status, continuable = continuable, digest = digest, added = added, last = last,
  entry = entry, messages = messages_blob, response = response_blob, spent = spent })
local dropped = announced == '1' and announce(tenant, digits, status, max_pending) or 0
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
return { 'ok', dropped, why }
