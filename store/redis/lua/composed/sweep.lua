#!lua flags=allow-oom
local usage = KEYS[1]; local leaves = KEYS[2]; local trees = KEYS[3]; local turns = ARGV[1]; local only = ARGV[2]; local idle_us = tonumber(ARGV[3]); local named_us = tonumber(ARGV[4]); local grace_us = tonumber(ARGV[5]); local clock_us = tonumber(ARGV[6]); local budget = tonumber(ARGV[7])
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

local now_ms = math.floor(now_us / 1000)

local function awaited(tenant, digits)
  local job = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'awaits')
  return job and redis.call('EXISTS', (turns .. tenant .. ':' .. 'job' .. ':' .. job)) == 1 and job or nil
end

local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local function place_leaf(tenant, digits, score)
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

local function place_tombstone(tenant, digits, unpinned)
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

local CONVERSATION_MARK = '636f6e766572'

local function is_older(tenant, root)
  local noted = redis.call('GET', (shard .. 'older'))
  return noted and tonumber(redis.call('ZSCORE', (shard .. 'trees'), tenant .. '/' .. root) or 0) > tonumber(noted)
end

local AT_ONCE_US = 9000000000000000

local function archive_next(tenant, root, used)
  local member = tenant .. '/' .. root
  local due = tonumber(redis.call('ZSCORE', (shard .. 'unarchived'), member) or 0)
  if due > now_us / 1000 + (redis.call('GET', (shard .. 'archive')) or 0) then
    return false
  end
  redis.call('ZADD', (shard .. 'unarchived'), 'XX', 'LT', (string.format('%.0f', (used - AT_ONCE_US))), member)
  return true
end

local function is_unarchived(tenant, root, digits, touched)
  local lacks = redis.call('ZSCORE', ((shard .. ('changes:' .. tenant .. '/' .. root))), '+' .. digits)
  local older = not lacks and is_older(tenant, root)
  if not (lacks or older) or (redis.call('EXISTS', (shard .. 'archive-away')) == 1) then
    return false
  end
  if older then
    do
      local tenant, root, member, score = tenant, root, '+' .. digits, next_score((shard .. 'clock'))
      local after = not plain and redis.call('GET', (shard .. 'archive'))
      if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
        and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
        redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
      end
    end
  end
  return true, archive_next(tenant, root, touched)
end

local function is_unarchived_tree(tenant, root)
  if redis.call('EXISTS', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
    local used = redis.call('ZSCORE', (shard .. 'trees'), tenant .. '/' .. root) or 0
    return true, archive_next(tenant, root, used)
  end
  return is_older(tenant, root), true
end

local function note_logged(bytes)
  local total = redis.call('INCRBY', (shard .. 'logged'), (string.format('%.0f', bytes)))
  if total == 0 then
    redis.call('DEL', (shard .. 'logged'))
  end
  return total
end

local LOOKS = 500

local function held_for_a_run(family, tenant, digits)
  local pins = (turns .. tenant .. ':' .. family .. ':' .. digits)
  return redis.call('EXISTS', pins) == 1 and (redis.call('ZCOUNT', pins, '(' .. now_ms, '+inf') > 0)
end

local function is_held(tenant, digits, turn)
  if held_for_a_run('pins', tenant, digits) or (turn.awaits and awaited(tenant, digits)) then
    return true
  end
  return is_unarchived(tenant, turn.root, digits, turn.touched)
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
local function unneeded_tombstone()
  local places = former > 0 and { (shard .. 'tombstones'), leaves } or { (shard .. 'tombstones') }
  for _, place in ipairs(places) do
    for _ = 1, LOOKS do
      local member = redis.call('ZRANGE', place, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1)[1]
      if not member then
        break
      end
      local tenant, digits
      do
        local member = member
        local slash = string.find(member, '/', 1, true)
        tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
      end
      local turn
      do
        local tenant, digits = tenant, digits
        local root, parent, deleted, held, touched, log_bytes, children, awaits = unpack(redis.call('HMGET',
          (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits'))
        turn = { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
          children = children, awaits = awaits }
      end
      if turn.deleted and turn.children == '0' then
        return tenant, digits, turn
      end
      do
        local tenant, digits, deleted = tenant, digits, true
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
    end
  end
end
local function adopting()
  local QUIET_US = 600 * 1000000
  local ADOPTED = 200
  local PAGES, PAGE = 4, 100
  local INDEXED = 500
  local FORGOTTEN = '(0'
  local FORMER = '/'

  local function adopt_counter(field, tenant, noted)
    local change = tonumber(noted) or 0
    redis.call('HDEL', usage, field .. '/' .. tenant)
    if change ~= 0 then
      do
        local tenant, field, change = tenant, field, change
        if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
          redis.call('ZREM', usage .. ':' .. field, tenant)
        end
      end
    end
    if change ~= 0 and field == 'trees' then
      do
        local tenant, field, change = tenant, 'bytes', change * TREE_BYTES
        if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
          redis.call('ZREM', usage .. ':' .. field, tenant)
        end
      end
    end
  end

  local function counters_of(tenant)
    for _, field in ipairs({ 'responses', 'tombstones', 'trees', 'bytes' }) do
      local noted = redis.call('HGET', usage, field .. '/' .. tenant)
      if noted then
        adopt_counter(field, tenant, noted)
      end
    end
  end

  local function other_fields()
    return redis.call('HLEN', usage)
      - redis.call('HEXISTS', usage, 'responses') - redis.call('HEXISTS', usage, 'tombstones')
      - redis.call('HEXISTS', usage, 'trees') - redis.call('HEXISTS', usage, 'bytes')
  end

  local function counters()
    local page, cursor = 0, '0'
    while page < PAGES and other_fields() > 0 do
      local found = redis.call('HSCAN', usage, cursor, 'COUNT', PAGE)
      cursor, page = found[1], page + 1
      for at = 1, #found[2], 2 do
        local field, tenant = string.match(found[2][at], '^(%l+)/(.+)$')
        if field then
          adopt_counter(field, tenant, found[2][at + 1])
        end
      end
      if cursor == '0' then
        return true
      end
    end
    return other_fields() == 0
  end

  local function indexed()
    local sweeps = (shard .. 'sweeps')
    local from, once = unpack(redis.call('HMGET', sweeps, 'indexing', 'indexed'))
    from = from or FORGOTTEN
    local page = redis.call('ZRANGE', trees, from, '+inf', 'BYSCORE', 'LIMIT', 0, INDEXED, 'WITHSCORES')
    for at = 1, #page, 2 do
      local tenant, root
      do
        local member = page[at]
        local slash = string.find(member, '/', 1, true)
        tenant, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
      end
      if redis.call('ZSCORE', (trees .. ':' .. tenant), root) ~= page[at + 1] then
        do
          local tenant, root, score = tenant, root, page[at + 1]
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
      end
    end
    local on = FORGOTTEN
    if #page == 2 * INDEXED then
      on = page[#page] == from and '(' .. from or page[#page]
    end
    if on ~= from then
      redis.call('HSET', sweeps, 'indexing', on)
    end
    if on == FORGOTTEN and not once then
      redis.call('HSET', sweeps, 'indexed', 1)
    end
    return on ~= FORGOTTEN and not once
  end

  local function some()
    local counted = counters()
    local newest = redis.call('ZRANGE', leaves, 0, 0, 'REV', 'WITHSCORES')[2]
    if not newest or tonumber(newest) > now_us - QUIET_US then
      return not counted
    end
    for _, member in ipairs(redis.call('ZRANGE', leaves, 0, ADOPTED - 1, 'REV')) do
      local tenant, digits
      do
        local member = member
        local slash = string.find(member, '/', 1, true)
        tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
      end
      local turn
      do
        local tenant, digits = tenant, digits
        local root, parent, deleted, held, touched, log_bytes, children, awaits = unpack(redis.call('HMGET',
          (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits'))
        turn = { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
          children = children, awaits = awaits }
      end
      do
        local tenant, digits = tenant, digits
        if former > 0 then
          former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
        end
      end
      if turn.children == '0' and turn.deleted then
        place_tombstone(tenant, digits, (redis.call('ZRANGE', ((turns .. tenant .. ':' .. 'pins' .. ':' .. digits)), -1, -1, 'WITHSCORES')[2] or 0))
      elseif turn.children == '0' then
        place_leaf(tenant, digits, turn.touched)
      end
    end
    return former > 0 or not counted
  end

  local function oldest(is_over, kept, stays)
    local rank, looks = stays[FORMER] or 0, LOOKS
    while rank ~= ALL and former > 0 and looks > 0 do
      looks = looks - 1
      local member, score = unpack(redis.call('ZRANGE', leaves, rank, rank, 'WITHSCORES'))
      local name, digits
      do
        local member = member or FORMER
        local slash = string.find(member, '/', 1, true)
        name, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
      end
      local turn = member and is_over(name) and turn_of(name, digits)
      if not member then
        rank = ALL
      elseif not turn then
        rank = rank + 1
      elseif turn.children ~= '0' then
        do
          local tenant, digits = name, digits
          if former > 0 then
            former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
          end
        end
      elseif not turn.deleted and turn.touched ~= score then
        do
          local tenant, digits = name, digits
          if former > 0 then
            former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
          end
        end
        do
          local tenant, digits, score = name, digits, turn.touched
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
      elseif member ~= kept and not is_held(name, digits, turn) then
        return name, digits, turn, looks
      else
        rank = rank + 1
      end
      stays[FORMER] = rank
    end
    return nil, nil, nil, looks
  end

  return { counters_of = counters_of, counters = counters, some = some, indexed = indexed, oldest = oldest }
end

local DAY_US = 86400 * 1000000
local GAP_US = 3600 * 1000000

local function doubted()
  local sweeps, now = (shard .. 'sweeps'), now_us
  if math.abs(now - clock_us) > GAP_US then
    return 'clock'
  end
  local last, began = unpack(redis.call('HMGET', sweeps, 'last', 'began'))
  if not last or not began or math.abs(now - last) > GAP_US then
    began = (string.format('%.0f', now))
  end
  redis.call('HSET', sweeps, 'last', (string.format('%.0f', now)), 'began', began)
  return now - began < grace_us and 'gap' or ''
end

local doubt, idle = '', 0
if only == '' and idle_us > 0 then
  doubt = doubted()
  idle = doubt ~= '' and redis.call('ZCOUNT', trees, '(0', (string.format('%.0f', (now_us - idle_us)))) or 0
end
local takes_unused = only == '' and idle_us > 0 and doubt == ''
local since = takes_unused and now_us - idle_us - grace_us or 0

local function postpone(tenant, root, used, after_us)
  local score = (string.format('%.0f', (math.min(since + after_us, now_us))))
  do
    local tenant, root, score = tenant, root, score
    redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
    redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
  end
  redis.call('HSET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'idle_score', score, 'idle_since', (string.format('%.0f', used)))
end

local function stays(tenant, root, score, conversation)
  local used, given, before = score, unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'idle_score', 'idle_since'))
  if given and tonumber(given) == score then
    used = tonumber(before)
  end
  if conversation and not (named_us > 0 and used <= now_us - named_us - grace_us) then
    postpone(tenant, root, used, DAY_US)
    return true
  elseif is_unarchived_tree(tenant, root) then
    postpone(tenant, root, used, GAP_US)
    return true
  end
  return false
end

local function leaf_of_a_tree_that_is_gone()
  while budget > 0 do
    local member = only
    if only == '' then
      member = redis.call('ZRANGE', trees, 0, 0)[1]
    end
    local used = tonumber(member and redis.call('ZSCORE', trees, member) or nil)
    if not used or used > since then
      return nil
    end
    local tenant, root
    do
      local member = member
      local slash = string.find(member, '/', 1, true)
      tenant, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
    end
    local busy = used > 0 and (redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'jobs') == 1)
    local conversation = used > 0 and not busy and conversation_in(tenant, root)
    if busy then
      do
        local tenant, root, score = tenant, root, next_score((shard .. 'clock'))
        redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
        redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
      end
    elseif used == 0 then
      return tenant, redis.call('SRANDMEMBER', (turns .. tenant .. ':' .. 'tree' .. ':' .. root)), nil, false
    elseif not stays(tenant, root, used, conversation) then
      return tenant, type(conversation) == 'string' and conversation or redis.call('SRANDMEMBER', (turns .. tenant .. ':' .. 'tree' .. ':' .. root)),
        nil, true
    end
    budget = budget - 1
  end
end

local function is_to_adopt()
  local adopted = adopting()
  local moves, indexes = adopted.some(), adopted.indexed()
  return moves or indexes
end

local expired = 0
while budget > 0 do
  local tenant, digits, turn, unused = leaf_of_a_tree_that_is_gone()
  if not digits and budget > 0 then
    if only == '' then
      tenant, digits, turn = unneeded_tombstone()
    end
    if not digits then
      local older = only == '' and is_to_adopt()
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
      return { older and 'again' or 'ok', doubt, idle, expired }
    end
  end
  if digits then
    local taken = take(tenant, digits, budget, turn)
    expired = expired + (unused and taken or 0)
    budget = budget - taken
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
return { 'again', doubt, idle, expired }
