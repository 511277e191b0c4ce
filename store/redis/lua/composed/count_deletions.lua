#!lua flags=allow-oom
local archive_deletions = KEYS[1]; local turns = ARGV[1]; local more = tonumber(ARGV[2])

local counted = redis.call('INCRBY', archive_deletions, (string.format('%.0f', more)))
return { 'ok', counted }
