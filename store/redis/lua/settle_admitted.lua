--- include limits
-- Some pieces of a tenant's work are over: their limits get what they took, in the place of what was reserved. Others are still
-- under way.
--
-- Arguments: tenant   whose work it is
--            over     of each DIGITS, READS, WRITES and TOKEN: its id's, the tokens that it read and wrote, and who has
--                     reserved for it, '' for whoever that is; JSON. READS is -1 where nobody knows what it took, and all
--                     that was reserved counts; -2 where it never began, and nothing does
--            held     the digits of each that goes on, with spaces between
--            held_ms  after how long somebody looks whether these are over; they count as under way for twice as long
-- Result:    {'ok', for how many of those over something was reserved, and still was}
-- Invariant: each is settled once, and by another TOKEN not at all. What was counted in a month is settled in that. What was
--            settled stays settled.
--
-- `mean` is about how many tokens the tenant's work writes: of each piece it takes a tenth.

local looked, ends = exact(now_us / 1000 + held_ms), exact(now_us / 1000 + 2 * held_ms)
for digits in string.gmatch(held, '%S+') do
  local known = call('HGET', reserved, digits)
  if known then
    call('PEXPIRE', reserved, KEPT_MS)
    call('ZADD', reservations, 'XX', looked, tenant .. '/' .. digits)
    for _, each in ipairs(cjson.decode(known).taken) do
      if each[2] == 'parallel' then
        call('ZADD', parallel_key(each[1]), ends, digits)
      end
    end
  else -- it was settled, or what was reserved has expired
    call('ZREM', reservations, tenant .. '/' .. digits)
  end
end
return { 'ok', exact(settle_work(cjson.decode(over))) }
