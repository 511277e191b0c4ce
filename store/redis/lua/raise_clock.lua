--- include clock
-- Have the clock of the shard be no earlier than a time: all that is stored from now on is later.
--
-- Arguments: us  the time, in µs since 1970
-- Result:    {'ok'}
-- Invariant: the clock only rises.

if tonumber(call('GET', clock) or 0) < us then
  call('SET', clock, exact(us))
end
return { 'ok' }
