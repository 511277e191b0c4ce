-- Shared by the scripts that remove event logs, for new ones or as they were kept for long enough.
-- Invariant: the log of a response under way stays; of the others the one that ended first goes first.

-- Remove the log of an ended response, and the response too if it is fleeting.
local function end_log(tenant, digits)
  local node = key('node', tenant, digits)
  local log_bytes, fleeting = unpack(redis.call('HMGET', node, 'log_bytes', 'fleeting'))
  redis.call('HDEL', node, 'log_bytes')
  drop_log(tenant, digits, log_bytes or 0)
  if fleeting then
    take(tenant, digits, 1)
  end
end

-- Make room for so many bytes more of events: the logs of what ended first go, at most `budget` of them. 'ok', 'again'
-- when that was not enough, or 'full' when only logs of what is under way are left.
local function make_log_room(bytes, max_logged, budget)
  while logged() + bytes > max_logged do
    local oldest = redis.call('ZRANGE', shard_key('logs'), 0, 0)[1]
    if not oldest then
      return 'full'
    elseif budget == 0 then
      return 'again'
    end
    end_log(split(oldest))
    budget = budget - 1
  end
  return 'ok'
end
