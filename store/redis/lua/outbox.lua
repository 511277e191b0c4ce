--- include pins
-- Shared by the scripts that move webhooks: each says to a receiver how a background response ended.
-- Invariant: a webhook waits once, however often it is announced, as TENANT/DIGITS/STATUS. It is in `outbox` and in
-- `outbox-ages` or in neither, and in `outbox-tries` only while it is there. There are never more than the most that
-- may wait: the oldest go for new ones.

local MOST_DROPPED = 1000 -- by one call: more have to go only after the limit was lowered, and then in several calls

local function drop_webhooks(...)
  call('ZREM', shard_key('outbox'), ...)
  call('ZREM', shard_key('outbox-ages'), ...)
  call('HDEL', shard_key('outbox-tries'), ...)
end

-- The response has just ended: add its webhook. How many of the oldest were dropped for it.
local function announce(tenant, digits, status, max_pending)
  local ages, member = shard_key('outbox-ages'), tenant .. '/' .. digits .. '/' .. status
  call('ZADD', shard_key('outbox'), 'NX', now_ms, member)
  call('ZADD', ages, 'NX', now_ms, member)
  local over = math.min(call('ZCARD', ages) - max_pending, MOST_DROPPED)
  if over <= 0 then
    return 0
  end
  drop_webhooks(unpack(call('ZRANGE', ages, 0, over - 1)))
  return over
end
