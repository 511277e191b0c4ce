-- Hold the leases of jobs for longer.
--
-- Keys:      leases
-- Arguments: held      for each job TENANT/DIGITS and the token of who holds it, with spaces between
--            lease_ms  for how long they are to be held from now on
-- Result:    {'ok', TENANT/DIGITS of each that is lost}
-- Invariant: who has lost a lease changes nothing.

local lost = { 'ok' }
for member, token in string.gmatch(held, '(%S+) (%S+)') do
  local tenant, digits = split(member)
  local job = key('job', tenant, digits)
  local holder, heard = unpack(redis.call('HMGET', job, 'token', 'heard'))
  if holder == token then
    hear(job, heard)
    redis.call('ZADD', leases, now_ms() + lease_ms, member)
  else
    lost[#lost + 1] = member
  end
end
return lost
