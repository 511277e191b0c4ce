#!lua flags=allow-oom
local clock = KEYS[1]; local usage = KEYS[2]; local logged = KEYS[3]; local turns = ARGV[1]; local since = ARGV[2]; local nodes = ARGV[3]; local events = ARGV[4]; local counters = ARGV[5]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

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
      if redis.call('ZSCORE', trees_of(tenant), root) ~= page[at + 1] then
        place_tree(tenant, root, page[at + 1])
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
      local turn = turn_of(tenant, digits)
      do
        local tenant, digits = tenant, digits
        if former > 0 then
          former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
        end
      end
      if turn.children == '0' and turn.deleted then
        place_tombstone(tenant, digits, unpinned_from((turns .. tenant .. ':' .. 'pins' .. ':' .. digits)))
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
        place_leaf(name, digits, turn.touched)
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

local counted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')
local moment = redis.call('GET', clock) or '-'
for at = 1, 4 do
  moment = moment .. ' ' .. (counted[at] or '-')
end
if moment ~= since then
  return { 'changed' }
end
for tenant, digits, field, number in string.gmatch(nodes, '([^/ ]+)/(%x+)/(%l+)=(%d+)') do
  local node = (turns .. tenant .. ':' .. 'node' .. ':' .. digits)
  if field == 'jobs' and number == '0' then
    redis.call('HDEL', node, field)
  elseif redis.call('EXISTS', node) == 1 then
    redis.call('HSET', node, field, number)
  end
end
local noted, number = string.match(events, '^(.*)=(%d+)$')
if noted and (redis.call('GET', logged) or '0') == noted then
  redis.call('SET', logged, number)
end
for field, number in string.gmatch(counters, '([^= ]+)=(%d+)') do
  local name, tenant = string.match(field, '^(%l+)/(.+)$')
  if tenant then
    adopting().counters_of(tenant)
    redis.call('ZADD', usage .. ':' .. name, number, tenant)
    redis.call('ZREMRANGEBYSCORE', usage .. ':' .. name, 0, 0)
  elseif number == '0' then
    redis.call('HDEL', usage, field)
  else
    redis.call('HSET', usage, field, number)
  end
end
return { 'ok' }
