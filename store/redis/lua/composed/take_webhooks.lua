#!lua flags=allow-oom
local outbox = KEYS[1]; local turns = ARGV[1]; local token = ARGV[2]; local most = tonumber(ARGV[3]); local hold_ms = tonumber(ARGV[4])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local function drop_webhooks(...)
  redis.call('ZREM', (shard .. 'outbox'), ...)
  redis.call('ZREM', (shard .. 'outbox-ages'), ...)
  redis.call('HDEL', (shard .. 'outbox-tries'), ...)
end


local ages, tries = (shard .. 'outbox-ages'), (shard .. 'outbox-tries')
local note = (shard .. ('outbox-take:' .. token))

local function hold_those_due()
  local held = {}
  for _, member in ipairs(redis.call('ZRANGE', outbox, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)) do
    if string.find(member, '^[^/ ]+/%x+/%l+$') and redis.call('ZSCORE', ages, member) then
      redis.call('ZADD', outbox, now_ms + hold_ms, member)
      redis.call('HINCRBY', tries, member, 1)
      held[#held + 1] = member
    else
      drop_webhooks(member)
    end
  end
  if #held > 0 then
    redis.call('SET', note, table.concat(held, ' '), 'PX', hold_ms)
  end
  return table.concat(held, ' ')
end

local taken = { 'ok' }
for member in string.gmatch(redis.call('GET', note) or hold_those_due(), '%S+') do
  local ended = redis.call('ZSCORE', ages, member)
  if ended then
    taken[#taken + 1] = member .. ' ' .. (redis.call('HGET', tries, member) or '1') .. ' ' .. ended
  end
end
return taken
