--- include hearing
--- include log_room
--- include pins
-- Add an entry to the log of a job, and hold its lease for longer.
--
-- Arguments: token     of who holds the lease
--            lease_ms  for how long it is to be held from now on, or an eighth less
--            after     the number of the event before the entry's first one, or '' to leave it unchecked
--            last      the number of the entry's last event
--            entry     its bytes
--            progress  1 if the holder got further with it, else 0
--            snapshot  what the events up to the last one come to, or '' to leave the last snapshot
--            budget    the most logs that this call removes
-- Result:    {'ok'} | {'lost'} when somebody else holds the lease, or the response has ended | {'again'} when more logs
--            have to go than one call may take | {'full'} when all that are left are of responses under way | {'behind',
--            the number of the last event in the log} when that isn't the one before
-- Invariant: who has lost the lease changes nothing. A retry adds nothing. A log has no gap.

local LEASE_PART = 8 -- a lease that is younger than such a part of it is held for long enough

local job = key('job', tenant, digits)
local holder, heard, progressed, before, log_bytes, snapshot_bytes, leased =
  unpack(call('HMGET', job, 'token', 'heard', 'progressed', 'last', 'log_bytes', 'snapshot_bytes', 'leased'))
if holder ~= token then
  return { 'lost' }
end
if tonumber(before) >= last then
  return { 'ok' }
end
if after ~= '' and before ~= after then -- a server that came back, or another that took over, lacks the end of the log
  return { 'behind', before }
end
local grown = #entry + ENTRY_BYTES + (snapshot == '' and 0 or #snapshot - (snapshot_bytes or 0))
local verdict = take_log_room(grown, max_logged, budget)
if verdict ~= 'ok' then
  return { verdict }
end
add_entry(tenant, digits, last, entry)
if snapshot ~= '' then
  call('SET', key('snapshot', tenant, digits), snapshot)
  call('HSET', job, 'snapshot_bytes', #snapshot)
end
if heard and heard ~= 'yes' then
  hear(job, heard)
  progressed, leased = nil, nil
end
call('HSET', job, 'last', last, 'log_bytes', exact(log_bytes + grown))
if progress == '1' and progressed ~= '1' then
  call('HSET', job, 'progressed', 1)
end
local gained = now_ms + lease_ms - (leased or 0)
if gained < 0 or gained > lease_ms / LEASE_PART then -- below 0 the clock was stepped back
  call('ZADD', leases, now_ms + lease_ms, tenant .. '/' .. digits)
  call('HSET', job, 'leased', exact(now_ms + lease_ms))
end
return { 'ok' }
