--- include limits
-- Pieces of work that were let begin are still under way.
--
-- Keys:      reservations
-- Arguments: tenant   whose work it is
--            held     the digits of each, with spaces between
--            held_ms  after how long somebody looks whether they are over; they count as under way for twice as long
-- Result:    {'ok'}
-- Invariant: what was settled stays settled.

local looked, ends = exact(now_us / 1000 + held_ms), exact(now_us / 1000 + 2 * held_ms)
for digits in string.gmatch(held, '%S+') do
  local known = redis.call('HGET', reserved, digits)
  if known then
    redis.call('PEXPIRE', reserved, KEPT_MS)
    redis.call('ZADD', reservations, 'XX', looked, tenant .. '/' .. digits)
    for _, each in ipairs(cjson.decode(known).taken) do
      if each[2] == 'parallel' then
        redis.call('ZADD', parallel_key(each[1]), ends, digits)
      end
    end
  else -- it was settled, or what was reserved has expired
    redis.call('ZREM', reservations, tenant .. '/' .. digits)
  end
end
return { 'ok' }
