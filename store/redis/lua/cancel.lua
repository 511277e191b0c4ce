--- include idle
--- include queueing
-- Cancel a background response. From now on only the caller, who has to end it, can write to its log.
--
-- Arguments: token     names the caller, and this call among its retries
--            lease_ms  for how long it is the caller's to end
-- Result:    {'ok', its epoch, the number of the last event in its log, and two spans in ms: since it was submitted, and
--            for which it ran, 0 if it hasn't begun} for the caller to end it | {'cancelled'} when that was done before,
--            or somebody else is ending it | {'ended', its status} | {'synchronous'} | {'missing'}
-- Invariant: what has ended stays as it is.

local root, deleted, status, background = unpack(call('HMGET', node, 'root', 'deleted', 'status', 'background'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
elseif not background then
  return { 'synchronous' }
end
local level, epoch, last, submitted, started =
  unpack(call('HMGET', job, 'level', 'epoch', 'last', 'submitted', 'started'))

local function since(moment)
  return exact(now_ms - (moment or now_ms))
end

if status == 'cancelled' and epoch and holds_lease(tenant, digits, token) then
  return { 'ok', epoch, last, since(submitted), since(started) }
elseif status == 'cancelled' then
  return { 'cancelled' }
elseif not epoch then
  return { 'ended', status }
end
if level ~= '' then
  rest(tenant, digits, now_ms - (dequeue(level, tenant, digits) or now_ms))
  started = call('HGET', job, 'started')
end
call('HSET', node, 'status', 'cancelled')
call('HSET', job, 'tries', 1, 'progressed', 0)
epoch = lease(tenant, digits, token, lease_ms, 'yes')
tell_workers('cancelled ' .. tenant .. '/' .. digits)
return { 'ok', exact(epoch), last, since(submitted), since(started) }
