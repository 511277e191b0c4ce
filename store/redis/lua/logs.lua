--- include clock
-- Shared by the scripts that write to event logs, or take them away.
-- Invariant: `logged` is the sum of the bytes of all logs and snapshots, which each log's job notes, and once that has
-- ended its node.

-- So many bytes more are in logs; how many that are now.
local function note_logged(bytes)
  local total = redis.call('INCRBY', shard_key('logged'), exact(bytes))
  if total == 0 then
    redis.call('DEL', shard_key('logged'))
  end
  return total
end

local function tell_followers(tenant, digits, payload)
  redis.call('SPUBLISH', key('events', tenant, digits), payload)
end

-- Delete a log, of which so many bytes are noted, and the snapshot.
local function drop_log(tenant, digits, log_bytes)
  redis.call('UNLINK', key('log', tenant, digits), key('snapshot', tenant, digits))
  redis.call('ZREM', shard_key('logs'), tenant .. '/' .. digits)
  note_logged(0 - log_bytes)
  tell_followers(tenant, digits, 'gone')
end
