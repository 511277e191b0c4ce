--- include clock
-- Raise the head of a shard: note a number that the archive has, and take a number that is still to be written there.
--
-- Arguments: known  a number that the archive's head has reached, or 0
--            gone   the number of a deletion that the server has to have heard of, or 0
--            more   1 to take the next number, or 0
-- Result:    {'ok', the last number that was taken} | {'older', that} when it has not heard of the deletion
-- Invariant: `known` and `raised` only rise, and `known` is never above `raised`. A server that went back in time has
--            those of then, and nothing is noted in it that hides that.

local before = tonumber(call('HGET', archive_head, 'raised') or 0)
if before < gone then
  return { 'older', before }
end
local raised = math.max(before, known) + more
call('HSET', archive_head, 'raised', exact(raised))
if known > tonumber(call('HGET', archive_head, 'known') or 0) then
  call('HSET', archive_head, 'known', exact(known))
end
return { 'ok', raised }
