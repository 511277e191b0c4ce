-- Shared by the scripts that write to event logs, or count their bytes.
-- Invariant: the id of an entry is the number of its last event and one more, so a log has no entry twice.

local ENTRY_BYTES = 32 -- what the server holds for an entry beside its bytes

local function logged()
  return tonumber(redis.call('GET', shard_key('logged')) or 0)
end

-- Delete a snapshot, of which so many bytes are noted; returns how many.
local function drop_snapshot(tenant, digits, snapshot_bytes)
  redis.call('UNLINK', key('snapshot', tenant, digits))
  note_logged(0 - snapshot_bytes)
  return snapshot_bytes
end

-- Add an entry whose last event has the number `last`; how many bytes that takes.
local function add_entry(tenant, digits, last, blob)
  local id = exact(last + 1)
  redis.call('XADD', key('log', tenant, digits), id .. '-0', 'b', blob)
  tell_followers(tenant, digits, id .. ' ' .. blob)
  note_logged(#blob + ENTRY_BYTES)
  return #blob + ENTRY_BYTES
end
