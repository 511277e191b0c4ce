--- include ending_logs
-- Take away event logs that were kept for long enough, and with them the responses that were to be kept no longer.
--
-- Arguments: kept_ms  for how long a log is kept after its response has ended
--            budget   the most logs that this call removes
-- Result:    {'ok'} when none is left | {'again'} when some may be
-- Invariant: the log of a response under way stays.

local late = call('ZRANGE', shard_key('logs'), '-inf', now_ms - kept_ms, 'BYSCORE', 'LIMIT', 0, budget)
for _, member in ipairs(late) do
  end_log(split(member))
end
record()
return { #late == budget and 'again' or 'ok' }
