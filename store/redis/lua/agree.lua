--- include clock
-- Write to the layout record what has changed of it, unless somebody else wrote to it since the caller read it.
--
-- Arguments: revision  how often it had been written when the caller read it
--            fields    NAME=VALUE of what changes, with spaces between
--            release   who writes it
-- Result:    {'ok'} | {'changed'} when somebody else has written to it
-- Invariant: what is written follows from all of what was there.

if (call('HGET', store, 'revision') or '0') ~= revision then
  return { 'changed' }
end
for name, value in string.gmatch(fields, '(%S+)=(%S+)') do
  call('HSET', store, name, value)
end
call('HSET', store, 'release', release, 'written', exact(math.floor(now_us / 1000)))
call('HINCRBY', store, 'revision', 1)
return { 'ok' }
