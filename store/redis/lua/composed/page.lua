#!lua flags=allow-oom,no-writes
local trees = KEYS[1]; local turns = ARGV[1]; local of = ARGV[2]; local tenant = ARGV[3]; local score = ARGV[4]; local after = ARGV[5]; local ascending = tonumber(ARGV[6]); local most = tonumber(ARGV[7]); local idle_us = tonumber(ARGV[8])
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

local of_trees = of == 'trees'
local list = of_trees and (trees .. ':' .. tenant) or ((shard .. ('conversations:' .. tenant)))

local function before(itself)
  local low, high = redis.call('ZCOUNT', list, '-inf', '(' .. score), redis.call('ZCOUNT', list, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call('ZRANGE', list, middle, middle)[1]
    if found < after or (itself and found == after) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

local function is_known(digits)
  local root, deleted = unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'deleted'))
  return root and (of_trees or not deleted) and not gone(tenant, root, idle_us)
end

local total, first, last = redis.call('ZCARD', list), nil, nil
if ascending == 1 then
  first = after == '' and 0 or before(true)
  last = math.min(first + most, total) - 1
else
  last = (after == '' and total or before(false)) - 1
  first = math.max(last - most + 1, 0)
end
local page, some = {}, first <= last and redis.call('ZRANGE', list, first, last, 'WITHSCORES') or {}
for at = 1, #some, 2 do
  local place = ascending == 1 and (at + 1) / 2 or (#some - at + 1) / 2
  page[place] = some[at] .. '=' .. some[at + 1] .. (is_known(some[at]) and '' or '?')
end
local more = ascending == 1 and last + 1 < total or ascending == 0 and first > 0
return { 'ok', table.concat(page, ' '), more and 1 or 0 }
