--- include logs
--- include queueing
--- include usage
-- What is under way and stored in a shard, for metrics.
--
-- Result:    {'ok', how many jobs wait at each level, from 0 on, for how many ms the one does that waits for the longest of
--            those without hours, how many leases there are, the bytes of all event logs, how many webhooks wait, how many responses and
--            trees are stored, in how many bytes}
-- Invariant: nothing changes; it takes no longer with more jobs or conversations.

local counts, oldest = {}, now_ms
for level = 0, LEVELS - 1 do
  local queued = level_key('queued', level)
  counts[#counts + 1] = call('ZCARD', queued)
  if level < WINDOWED then
    oldest = math.min(oldest, call('ZRANGE', queued, 0, 0, 'WITHSCORES')[2] or oldest)
  end
end
local responses, trees, bytes = stored()
for _, count in ipairs({ math.max(0, now_ms - oldest), call('ZCARD', shard_key('leases')), logged(),
  call('ZCARD', shard_key('outbox')), responses, trees, bytes }) do
  counts[#counts + 1] = count
end
return { 'ok', unpack(counts) }
