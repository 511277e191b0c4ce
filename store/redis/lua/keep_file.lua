-- Make a file known that was uploaded.
--
-- Arguments: tenant    whose it is
--            file      its id
--            record    what is known of it
--            total     how many bytes it has
--            pieces    how many pieces of it Redis has; 0 where the archive has them
--            until_ms  when it expires, in ms since 1970; 0 for never
--            adopts    1 where the archive has it, and it was not uploaded to this Redis; else 0
-- Result:    {'ok'} | {'lost'} where some of the upload isn't there, or the file is being deleted
-- Invariant: a file that is known is whole, and takes the room that it needs: who took a dead upload over may have
--            ended it with fewer bytes. A retry is 'ok'.

local files, member = shard_key('files:' .. tenant), tenant .. '/' .. file
if call('HGET', files, file) == record then
  return { 'ok' }
end
local room, times = shard_key('file-room:' .. tenant), shard_key('files-until')
local known = call('HGET', room, file)
if not known and adopts == '1' and not call('ZSCORE', times, member) then
  call('HSET', room, file, total)
  call('HINCRBY', room, '*', total)
  known = total
end
local held = shard_key('pieces:' .. member)
if not known or tonumber(known) < total or call('HLEN', held) < pieces then
  return { 'lost' }
end
local spare = total - known
call('HINCRBY', room, file, spare)
call('HINCRBY', room, '*', spare)
if pieces > 0 then
  call('INCRBY', shard_key('files-held'), spare)
end
if pieces > 0 and spare < 0 then
  for number = pieces, call('HLEN', held) - 1 do
    call('HDEL', held, number)
  end
  local last, before = call('HGET', held, pieces - 1), (pieces - 1) * call('HSTRLEN', held, 0) -- the others are full
  if last then
    call('HSET', held, pieces - 1, string.sub(last, 1, total - before))
  end
end
call('HSET', files, file, record)
if until_ms > 0 then
  call('ZADD', times, until_ms, member)
else
  call('ZREM', times, member)
end
return { 'ok' }
