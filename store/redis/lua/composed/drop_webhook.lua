#!lua flags=allow-oom
local outbox = KEYS[1]; local turns = ARGV[1]; local member = ARGV[2]
local shard = string.sub(turns, 1, -#'t:' - 1)

local function drop_webhooks(...)
  redis.call('ZREM', (shard .. 'outbox'), ...)
  redis.call('ZREM', (shard .. 'outbox-ages'), ...)
  redis.call('HDEL', (shard .. 'outbox-tries'), ...)
end


drop_webhooks(member)
return { 'ok' }
