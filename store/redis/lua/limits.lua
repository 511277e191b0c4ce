--- include clock
-- Shared by the scripts that let work begin within limits: what was used of a limit, taking from it and giving back, and
-- settling what was reserved.
--
-- A limit is [SCOPE, WHAT, WINDOW, LIMIT]: WHAT is requests, tokens or parallel, and WINDOW minute or month; '' for
-- parallel, of which limits are by how many there are at once. By minutes it is GCRA (ITU-T I.371): the limit has a
-- time at which all that was taken will have flown off, LIMIT a minute, and what would put that more than a minute ahead doesn't
-- fit: TIME NOTED LIMIT, which was noted at the time NOTED. Where the server's clock has stepped back behind that, as another
-- server's may be, both are taken to have been earlier by as much; else nothing would fit for as long as the step was. Where
-- the limit is higher now, what was taken is the same, and flies off sooner; where it is lower, no later. By months, of UTC,
-- it is a count: MONTH COUNT.

local MINUTE, DAY = 60000000, 86400000000 -- µs
local KEPT_MS = 33 * 86400000 -- longer than any month

-- A number for the month of a day, counted since 1970: unlike that of any other month (Howard Hinnant's civil_from_days).
local function month_of(day)
  local shifted = day + 719468
  local era = math.floor(shifted / 146097)
  local of_era = shifted - era * 146097
  local leaps = math.floor(of_era / 1460) - math.floor(of_era / 36524) + math.floor(of_era / 146096)
  local year = math.floor((of_era - leaps) / 365)
  local of_year = of_era - (365 * year + math.floor(year / 4) - math.floor(year / 100))
  return (era * 400 + year) * 12 + math.floor((5 * of_year + 2) / 153)
end

local month, month_ends -- the same while a script runs
local reserved

local function begin_limits()
  month, month_ends, reserved = nil, nil, shard_key('reserved:' .. tenant)
end

-- The number of the present month, and the µs until it is over.
local function present_month()
  if not month then
    local last = math.floor(now_us / DAY)
    month = month_of(last)
    while month_of(last + 1) == month do
      last = last + 1
    end
    month_ends = (last + 1) * DAY - now_us
  end
  return month, month_ends
end

local function limits_key(scope)
  return shard_key('limits:' .. tenant .. '/' .. scope)
end

local function parallel_key(scope)
  return shard_key('parallel:' .. tenant .. '/' .. scope)
end

local function kept_of(scope, field)
  return call('HGET', limits_key(scope), field) or ''
end

local function keep(scope, field, value)
  call('HSET', limits_key(scope), field, value)
  call('PEXPIRE', limits_key(scope), KEPT_MS)
end

-- So much of a minute's limit was taken that all of it will have flown off in so many µs.
local function keep_ahead(scope, field, ahead, limit)
  keep(scope, field, exact(now_us + ahead) .. ' ' .. exact(now_us) .. ' ' .. exact(limit))
end

-- By how many µs the time is ahead at which all that was taken of a minute's limit will have flown off; and that limit.
local function ahead_of(scope, field)
  local flown, noted, limit = string.match(kept_of(scope, field), '^(%d+) (%d+) (%d+)$')
  local before = tonumber(noted) or 0
  local ahead = math.max(0, (tonumber(flown) or 0) - math.max(now_us, before))
  if before > now_us then -- from now on time passes for what is refused, too
    keep_ahead(scope, field, ahead, tonumber(limit))
  end
  return ahead, tonumber(limit)
end

-- How much of a limit is used, and the µs until nothing of it is.
local function used_of(scope, what, window, limit)
  if what == 'parallel' then
    call('ZREMRANGEBYSCORE', parallel_key(scope), '-inf', exact(now_us / 1000))
    return call('ZCARD', parallel_key(scope)), 0
  end
  if window == 'minute' then
    local field = what .. ' ' .. window
    local ahead, before = ahead_of(scope, field)
    if before and before ~= limit and limit > 0 then
      ahead = ahead * math.min(1, before / limit)
      keep_ahead(scope, field, ahead, limit)
    end
    return ahead * limit / MINUTE, ahead
  end
  local present, ends = present_month()
  local before, count = string.match(kept_of(scope, what .. ' ' .. window), '^(%d+) (%d+)$')
  count = tonumber(before) == present and tonumber(count) or 0
  return count, count > 0 and ends or 0
end

-- The µs until `amount` more fits into a limit of which so much is used: 0 where it does, -1 where it never will.
local function wait_for(window, limit, used, amount)
  if amount > limit then
    return -1
  elseif used + amount <= limit + 0.001 then
    return 0
  elseif window == 'minute' then
    return math.ceil((used + amount - limit) * MINUTE / limit)
  elseif window == '' then
    return 1000000 -- nobody knows when one ends
  end
  local _, ends = present_month()
  return ends
end

-- So much more of a limit is used, or less where `amount` is below 0; of what another month has `counted` nothing.
local function use_limit(scope, what, window, limit, amount, counted)
  local field = what .. ' ' .. window
  if window == 'minute' then
    local ahead, present = ahead_of(scope, field)
    present = present or limit
    keep_ahead(scope, field, math.max(0, ahead + amount * MINUTE / present), present)
  else
    local present = present_month()
    if counted and counted ~= present then
      return
    end
    local used = used_of(scope, what, window, limit)
    keep(scope, field, exact(present) .. ' ' .. exact(math.max(0, used + amount) + 0.5))
  end
end

-- Count what a piece of work took, in the place of the limits that were `taken` for it.
local function settle_one(taken, digits, reads, writes)
  for _, each in ipairs(taken) do
    local scope, what, window, limit, amount, counted = unpack(each)
    if what == 'parallel' then
      call('ZREM', parallel_key(scope), digits)
    elseif reads == -2 then
      use_limit(scope, what, window, limit, -amount, counted)
    elseif reads >= 0 and what == 'tokens' then
      use_limit(scope, what, window, limit, reads + writes - amount, counted)
    end
  end
end

-- Count what work took in the place of what was reserved for it (settle_admitted.lua); for how much of it anything was.
local function settle_work(over)
  local mean, found = tonumber(call('HGET', reserved, 'mean')), 0
  for _, each in ipairs(over) do
    local digits, reads, writes, token = unpack(each)
    local reservation = call('HGET', reserved, digits)
    local known = reservation and cjson.decode(reservation)
    if not known or token == '' or token == known.token then
      call('ZREM', reservations, tenant .. '/' .. digits)
    end
    if known and (token == '' or token == known.token) then
      found = found + 1
      settle_one(known.taken, digits, reads, writes)
      if reads >= 0 and writes > 0 then
        mean = (mean or writes) + (writes - (mean or writes)) / 10
        call('HSET', reserved, 'mean', string.format('%.1f', mean))
      end
      call('HDEL', reserved, digits) -- behind the mean: the hash would lose its end with its last field
    end
  end
  return found
end
