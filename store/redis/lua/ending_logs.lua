--- include logs
--- include removal
-- Shared by the scripts that remove event logs, for new ones or as they were kept for long enough.
-- Invariant: the log of a response under way stays; of the others the one that ended first goes first.

-- Remove the log of an ended response, and the response too if it is fleeting.
local function end_log(tenant, digits)
  local node = key('node', tenant, digits)
  local log_bytes, fleeting = unpack(call('HMGET', node, 'log_bytes', 'fleeting'))
  call('HDEL', node, 'log_bytes')
  drop_log(tenant, digits, log_bytes or 0)
  if fleeting then
    take(tenant, digits, 1)
  end
end

-- Remove logs for as long as all have more than so many bytes: those that ended first go, at most `budget` of them. 'ok',
-- 'again' when that was not enough, or 'full' when only logs of what is under way are left.
local function end_logs(max_logged, budget)
  local verdict = 'ok'
  while verdict == 'ok' and logged() > max_logged do
    local oldest = call('ZRANGE', shard_key('logs'), 0, 0)[1]
    if not oldest then
      verdict = 'full'
    elseif budget == 0 then
      verdict = 'again'
    else
      end_log(split(oldest))
      budget = budget - 1
    end
  end
  record()
  return verdict
end
