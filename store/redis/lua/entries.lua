--- include logs
-- Shared by the scripts that write to event logs, or count their bytes.
-- Invariant: the id of an entry is the number of its last event and one more, so a log has no entry twice.

local ENTRY_BYTES = 32 -- what the server holds for an entry beside its bytes

local function logged()
  return tonumber(redis.call('GET', shard_key('logged')) or 0)
end

-- Add an entry whose last event has the number `last`. It takes ENTRY_BYTES more than it has, which the caller notes.
local function add_entry(tenant, digits, last, blob)
  local id = exact(last + 1)
  redis.call('XADD', key('log', tenant, digits), id .. '-0', 'b', blob)
  tell_followers(tenant, digits, id .. ' ' .. blob)
end
