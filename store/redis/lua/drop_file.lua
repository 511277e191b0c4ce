-- Delete a file, or what there is of an upload: its record, its room, and its pieces in Redis.
--
-- Arguments: tenant  whose it is
--            file    its id
--            due     1 to delete it only where it has expired, or its upload is taken for dead; else 0
-- Result:    {'ok'} | {'kept'} where it isn't due
-- Invariant: nothing knows the file any more, and its name waits in files-until, by 0, until its pieces in the archive
--            are gone, too. A retry changes nothing.

local times, member, moment = shard_key('files-until'), tenant .. '/' .. file, call('TIME')
local until_ms = call('ZSCORE', times, member)
if due == '1' and (not until_ms or tonumber(until_ms) > moment[1] * 1000 + math.floor(moment[2] / 1000)) then
  return { 'kept' }
end
local room, pieces = shard_key('file-room:' .. tenant), shard_key('pieces:' .. member)
call('HDEL', shard_key('files:' .. tenant), file)
local size = call('HGET', room, file)
if size then
  call('HDEL', room, file)
  if call('HINCRBY', room, '*', 0 - size) == 0 and call('HLEN', room) == 1 then -- Redis 7.0 takes no -0
    call('DEL', room)
  end
  if call('EXISTS', pieces) == 1 and call('DECRBY', shard_key('files-held'), size) == 0 then
    call('DEL', shard_key('files-held'))
  end
end
call('UNLINK', pieces)
call('ZADD', times, 0, member)
return { 'ok' }
