--- include clock
-- Store what an inspection of the whole shard has counted, if nothing has changed in it since.
--
-- Arguments: since     the clock and the four counters of the shard at that time, as `moment` gives them
--            commands  the commands that store it, a list of lists as msgpack
--            events    NOTED=NUMBER of bytes of events, or ''; noted only if they are still those
-- Result:    {'ok'} | {'changed'} when something has, so that nothing was stored
-- Invariant: each change of what is stored changes the clock or a counter of the shard; counters of the shard are
--            therefore stored by the last of several calls.

local noted_now = call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')
local moment = call('GET', clock) or '-'
for at = 1, 4 do
  moment = moment .. ' ' .. (noted_now[at] or '-')
end
if moment ~= since then
  return { 'changed' }
end
for _, command in ipairs(cmsgpack.unpack(commands)) do
  call(unpack(command))
end
local noted, number = string.match(events, '^(.*)=(%d+)$')
if noted and (call('GET', shard_key('logged')) or '0') == noted then
  call('SET', shard_key('logged'), number)
end
return { 'ok' }
