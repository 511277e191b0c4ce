-- Keep a piece of a file that is being uploaded, or the room for one that goes to the archive.
--
-- Arguments: tenant      whose file it is
--            file        its id
--            begins      1 where the upload begins with it, else 0
--            total       how many bytes the file has with it
--            number      the piece's number, from 0
--            piece       the piece; empty where it goes to the archive, or there is none
--            lease_ms    for how long nobody takes the upload for dead
--            most        how many files a tenant may have
--            most_bytes  how many bytes these may have together
--            most_held   how many bytes of files of all tenants the shard may have in Redis
-- Result:    {'ok'} | {'lost'} where the upload isn't there, as it was taken for dead, or the file is known or being
--            deleted | {'files'} | {'bytes'} | {'held'}: that bound would be passed
-- Invariant: a tenant has no more files and bytes than it may, those that are being uploaded included. A retry changes
--            nothing.

local room, times = shard_key('file-room:' .. tenant), shard_key('files-until')
local member, moment = tenant .. '/' .. file, call('TIME')
local known, until_ms = call('HGET', room, file), call('ZSCORE', times, member)
local is_over = call('HEXISTS', shard_key('files:' .. tenant), file) == 1 or (until_ms and tonumber(until_ms) == 0)
if is_over or (not known and begins == '0') then
  return { 'lost' }
elseif not known and call('HLEN', room) > most then -- with the field of the sum
  return { 'files' }
end
local more = math.max(0, total - (known or 0))
if more > 0 and (call('HGET', room, '*') or 0) + more > most_bytes then
  return { 'bytes' }
end
if piece ~= '' then
  if more > 0 and (call('GET', shard_key('files-held')) or 0) + more > most_held then
    return { 'held' }
  end
  call('HSET', shard_key('pieces:' .. member), number, piece)
  call('INCRBY', shard_key('files-held'), more)
end
call('HINCRBY', room, file, more)
call('HINCRBY', room, '*', more)
call('ZADD', times, moment[1] * 1000 + lease_ms, member)
return { 'ok' }
