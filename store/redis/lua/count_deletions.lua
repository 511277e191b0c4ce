--- include clock
-- Count deletions of which the archive is told next.
--
-- Arguments: more  how many more
-- Result:    {'ok', how many were counted in all}
-- Invariant: the count only rises; that of a server that went back in time is what it was then.

local counted = redis.call('INCRBY', archive_deletions, exact(more))
return { 'ok', counted }
