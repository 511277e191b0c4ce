#!lua flags=allow-oom
local reservations = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local over = ARGV[3]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local MINUTE, DAY = 60000000, 86400000000
local KEPT_MS = 33 * 86400000

local function month_of(day)
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local leaps = math.floor(of_era / 1460) - math.floor(of_era / 36524) + math.floor(of_era / 146096)
  local year = math.floor((of_era - leaps) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  return (era * 400 + year) * 12 + math.floor((5 * of_year + 2) / 153)
end

local periods = {}

local function period_of(window)
  local known = periods[window]
  if not known then
    local day = math.floor(now_us / DAY)
    local last = day
    while window == 'month' and month_of(last + 1) == month_of(day) do
      last = last + 1
    end
    known = { window == 'month' and month_of(day) or day, (last + 1) * DAY - now_us }
    periods[window] = known
  end
  return known[1], known[2]
end

local reserved = (shard .. ('reserved:' .. tenant))

local kept, changed = {}, {}

local function kept_of(scope, field)
  kept[scope] = kept[scope] or {}
  if kept[scope][field] == nil then
    kept[scope][field] = redis.call('HGET', ((shard .. ('limits:' .. tenant .. '/' .. scope))), field)
  end
  return kept[scope][field]
end

local function ahead_of(scope, field)
  local flown, noted = string.match(kept_of(scope, field) or '', '^(%d+) ?(%d*)$')
  return math.max(0, (tonumber(flown) or 0) - math.max(now_us, tonumber(noted) or 0))
end

local function used_of(scope, what, window, limit)
  if what == 'parallel' then
    redis.call('ZREMRANGEBYSCORE', ((shard .. ('parallel:' .. tenant .. '/' .. scope))), '-inf', (string.format('%.0f', (now_us / 1000))))
    return redis.call('ZCARD', ((shard .. ('parallel:' .. tenant .. '/' .. scope)))), 0
  end
  if window == 'minute' then
    local ahead
    do
      local scope, field = scope, what .. ' ' .. window
      local flown, noted = string.match(kept_of(scope, field) or '', '^(%d+) ?(%d*)$')
      ahead = math.max(0, (tonumber(flown) or 0) - math.max(now_us, tonumber(noted) or 0))
    end
    return ahead * limit / MINUTE, ahead
  end
  local value
  do
    local scope, field = scope, what .. ' ' .. window
    kept[scope] = kept[scope] or {}
    if kept[scope][field] == nil then
      kept[scope][field] = redis.call('HGET', ((shard .. ('limits:' .. tenant .. '/' .. scope))), field)
    end
    value = kept[scope][field]
  end
  local period, ends
  do
    local window = window
    local known = periods[window]
    if not known then
      local day = math.floor(now_us / DAY)
      local last = day
      while window == 'month' and month_of(last + 1) == month_of(day) do
        last = last + 1
      end
      known = { window == 'month' and month_of(day) or day, (last + 1) * DAY - now_us }
      periods[window] = known
    end
    period, ends = known[1], known[2]
  end
  local before, count = string.match(value or '', '^(%d+) (%d+)$')
  count = tonumber(before) == period and tonumber(count) or 0
  return count, count > 0 and ends or 0
end

local function use_limit(scope, what, window, limit, amount, period)
  local field = what .. ' ' .. window
  if window == 'minute' then
    local ahead = math.max(0, ahead_of(scope, field) + amount * MINUTE / limit)
    do
      local scope, field, value = scope, field, (string.format('%.0f', (now_us + ahead))) .. ' ' .. (string.format('%.0f', now_us))
      kept[scope][field] = value
      changed[scope] = changed[scope] or {}
      changed[scope][field] = value
    end
  else
    local present = period_of(window)
    if period and period ~= present then
      return
    end
    local used = used_of(scope, what, window, limit)
    do
      local scope, field, value = scope, field, (string.format('%.0f', present)) .. ' ' .. (string.format('%.0f', (math.max(0, used + amount))))
      kept[scope][field] = value
      changed[scope] = changed[scope] or {}
      changed[scope][field] = value
    end
  end
end

local function settle_work(over)
  local names = { 'mean' }
  for i, each in ipairs(over) do
    names[i + 1] = each[1]
  end
  if not over[1] then
    return 0
  end
  local reservation, settled, members = redis.call('HMGET', reserved, unpack(names)), {}, {}
  local mean, found = tonumber(reservation[1]), 0
  for i, each in ipairs(over) do
    local digits, reads, writes, token = unpack(each)
    local known = reservation[i + 1] and cjson.decode(reservation[i + 1])
    if not known then
      members[#members + 1] = tenant .. '/' .. digits
    elseif token == '' or token == known.token then
      found = found + 1
      settled[found], members[#members + 1] = digits, tenant .. '/' .. digits
      do
        local taken, digits, reads, writes = known.taken, digits, reads, writes
        for _, each in ipairs(taken) do
          local scope, what, window, limit, amount, period = unpack(each)
          if what == 'parallel' then
            redis.call('ZREM', ((shard .. ('parallel:' .. tenant .. '/' .. scope))), digits)
          elseif reads == -2 then
            use_limit(scope, what, window, limit, -amount, period)
          elseif reads >= 0 and what == 'tokens' then
            use_limit(scope, what, window, limit, reads + writes - amount, period)
          end
        end
      end
      if reads >= 0 and writes > 0 then
        mean = (mean or writes) + (writes - (mean or writes)) / 10
      end
    end
  end
  if found > 0 then
    if mean then
      redis.call('HSET', reserved, 'mean', string.format('%.1f', mean))
    end
    redis.call('HDEL', reserved, unpack(settled))
  end
  if members[1] then
    redis.call('ZREM', reservations, unpack(members))
  end
  return found
end

local found = settle_work(cjson.decode(over))
do
  for scope, fields in pairs(changed) do
    local values = {}
    for field, value in pairs(fields) do
      values[#values + 1] = field
      values[#values + 1] = value
    end
    redis.call('HSET', ((shard .. ('limits:' .. tenant .. '/' .. scope))), unpack(values))
    redis.call('PEXPIRE', ((shard .. ('limits:' .. tenant .. '/' .. scope))), KEPT_MS)
  end
end
return { 'ok', (string.format('%.0f', found)) }
