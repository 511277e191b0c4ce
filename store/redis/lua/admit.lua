--- include limits
-- Let a piece of a tenant's work begin if it is within all of its limits, and reserve what it may take.
--
-- Arguments: tenant     whose work it is
--            over       work of the tenant that is settled before (settle_admitted.lua); JSON
--            digits     the digits of its id
--            token      names whoever takes it
--            not_after  the ms after which the caller has given up
--            checks     SCOPE, WHAT, WINDOW and LIMIT of each limit (limits.lua); JSON
--            reads      the tokens that it reads
--            writes     the most tokens that it may write; of these no more is reserved than its limit has behind `reads`
--            usual      how many it is thought to write, as long as nobody knows what the tenant's work usually does
--            held_ms    after how long somebody looks whether it is over, unless more is said (settle_admitted.lua); it counts
--                       as under way for twice as long
-- Result:    {'ok', what is left of each limit and the seconds until all of it is again; JSON} | {'no', the number of the limit
--            for which it waits longest, from 0, the µs until it fits there, or -1 where it never does, how much it
--            asks of that, the same JSON} | {'late', the ms on this clock}
-- Invariant: all limits are taken from, or none. A retry is 'ok', and takes nothing. Where another one has reserved for this
--            id, as its process is lost, the reservation is the newest one's.
--
-- A reservation is kept by the work's digits until it is settled: `taken`, of each limit SCOPE, WHAT, WINDOW,
-- LIMIT, the amount and the month (limits.lua); `left`, the result; `token`.

settle_work(cjson.decode(over))
local known, mean = unpack(call('HMGET', reserved, digits, 'mean'))
if known then
  local before = cjson.decode(known)
  if before.token ~= token then
    before.token = token
    call('HSET', reserved, digits, cjson.encode(before))
  end
  return { 'ok', cjson.encode(before.left) }
elseif now_us / 1000 > not_after then
  return { 'late', exact(math.floor(now_us / 1000)) }
end
local tokens = reads + math.min(writes, math.ceil(tonumber(mean) or usual))
local left, taken, worst, longest = {}, {}, nil, 0

local function left_of(scope, what, window, limit)
  local used, full = used_of(scope, what, window, limit)
  return { math.max(0, math.floor(limit - used + 0.001)), full / 1000000 }, used
end

for i, check in ipairs(cjson.decode(checks)) do
  local scope, what, window, limit = unpack(check)
  local amount = what ~= 'tokens' and 1 or reads < limit and math.min(tokens, limit) or tokens
  local used
  left[i], used = left_of(scope, what, window, limit)
  local wait = wait_for(window, limit, used, amount)
  if wait ~= 0 and longest >= 0 and (wait < 0 or wait > longest) then
    worst, longest = i, wait
  end
  taken[i] = { scope, what, window, limit, amount, window == 'month' and present_month() or 0 }
end
if worst then
  return { 'no', worst - 1, exact(longest), taken[worst][5], cjson.encode(left) }
end
for i, each in ipairs(taken) do
  local scope, what, window, limit, amount = unpack(each)
  if what == 'parallel' then
    call('ZADD', parallel_key(scope), exact(now_us / 1000 + 2 * held_ms), digits)
    call('PEXPIRE', parallel_key(scope), KEPT_MS)
  else
    use_limit(scope, what, window, limit, amount)
  end
  left[i] = left_of(scope, what, window, limit)
end
call('HSET', reserved, digits, cjson.encode({ taken = taken, left = left, token = token }))
call('PEXPIRE', reserved, KEPT_MS)
call('ZADD', reservations, exact(now_us / 1000 + held_ms), tenant .. '/' .. digits)
return { 'ok', cjson.encode(left) }
