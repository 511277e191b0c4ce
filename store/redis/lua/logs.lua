--- include clock
-- Shared by the scripts that write to event logs, take them away, or count their bytes.
-- Invariant: `logged` is the sum of the bytes of all logs and snapshots, which each log's job notes, and once that has
-- ended its node. The id of an entry is the number of its last event and one more, so a log has no entry twice.

-- So many bytes more are in logs; how many that are now.
local function note_logged(bytes)
  local total = call('INCRBY', shard_key('logged'), exact(bytes))
  if total == 0 then
    call('DEL', shard_key('logged'))
  end
  return total
end

local function tell_followers(tenant, digits, payload)
  call('SPUBLISH', key('events', tenant, digits), payload)
end

-- Delete a log, of which so many bytes are noted, and the snapshot.
local function drop_log(tenant, digits, log_bytes)
  call('UNLINK', key('log', tenant, digits), key('snapshot', tenant, digits))
  call('ZREM', shard_key('logs'), tenant .. '/' .. digits)
  note_logged(0 - log_bytes)
  tell_followers(tenant, digits, 'gone')
end

local ENTRY_BYTES = 32 -- what the server holds for an entry beside its bytes

local function logged()
  return tonumber(call('GET', shard_key('logged')) or 0)
end

-- Add an entry whose last event has the number `last`. It takes ENTRY_BYTES more than it has, which the caller notes.
local function add_entry(tenant, digits, last, blob)
  local id = exact(last + 1)
  call('XADD', key('log', tenant, digits), id .. '-0', 'b', blob)
  tell_followers(tenant, digits, id .. ' ' .. blob)
end
