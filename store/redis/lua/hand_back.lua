--- include hearing
--- include queueing
-- Give a job back before it has ended, so that others can continue it at once.
--
-- Arguments: token      of who holds the lease
--            counts     1 if this was a try that failed, 0 if the holder has to leave
--            gives_way  1 if it waits at its own level, behind other tenants' jobs; 0 if it is before its tenant's that have not begun
-- Result:    {'ok'} | {'lost'}
-- Invariant: who has lost the lease changes nothing; so a retry is 'lost', and changes nothing.

if not holds_lease(tenant, digits, token) then
  return { 'lost' }
end
local job = key('job', tenant, digits)
local heard = call('HGET', job, 'heard')
if counts == '1' then
  hear(job, heard)
elseif heard ~= 'no' then
  call('HINCRBY', job, 'tries', -1)
end
put_back(tenant, digits, gives_way == '1')
return { 'ok' }
