--- include logs
--- include ending_logs
-- Shared by the scripts that write to a log, which may need room for that.
-- Arguments: max_logged  the most bytes of all logs in the shard
-- Invariant: that of ending_logs.lua, which most calls don't need.

-- Note that so many bytes more are in logs, and make room for them as end_logs does. Where there is none, nothing is noted.
local function take_log_room(bytes, max_logged, budget)
  local word = note_logged(bytes) > max_logged and end_logs(max_logged, budget) or 'ok'
  if word ~= 'ok' then
    note_logged(0 - bytes)
  end
  return word
end
