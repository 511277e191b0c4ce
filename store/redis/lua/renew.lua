--- include hearing
--- include pins
-- Hold the leases of jobs for longer.
--
-- Arguments: held      for each job TENANT/DIGITS and the token of who holds it, with spaces between
--            lease_ms  for how long they are to be held from now on
-- Result:    {'ok', how many are lost, TENANT/DIGITS of each of those, and of each other one to which something was said}
-- Invariant: who has lost a lease changes nothing.

local lost, steered = { 'ok', 0 }, {}
for member, token in string.gmatch(held, '(%S+) (%S+)') do
  local tenant, digits = split(member)
  local job = key('job', tenant, digits)
  local holder, heard, steers = unpack(call('HMGET', job, 'token', 'heard', 'steers'))
  if holder == token then
    hear(job, heard)
    call('ZADD', leases, now_ms + lease_ms, member)
    if steers then
      steered[#steered + 1] = member
    end
  else
    lost[#lost + 1] = member
    lost[2] = lost[2] + 1
  end
end
for _, member in ipairs(steered) do
  lost[#lost + 1] = member
end
return lost
