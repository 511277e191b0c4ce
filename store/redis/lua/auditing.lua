--- include clock
-- Shared by the scripts that have something for the audit log: an entry, and which one goes for it.
-- Invariant: administrators have a room of their own, and all other shares one together. Where that is full, the share with
-- the most entries loses its oldest. So a share with no more than its part of the room never loses one, whatever others do.
-- No two entries are of the same microsecond, and a later one is of a later one, though the server's clock steps back.
--
-- An entry is a member 'US RECORD' of `audit_entries`, and a member US of the list of its share; US is the score of both.

local ADMINISTRATORS = '@administrators'
local MOST_DROPPED = 4 -- how many go at most for one that comes: where the bound was lowered there are more to go

local function share_list(share)
  return shard_key('audit-of:' .. share)
end

local function count_share(share)
  local held = redis.call('ZCARD', share_list(share))
  if share == ADMINISTRATORS then
    return
  elseif held > 0 then
    redis.call('ZADD', audit_shares, held, share)
  else
    redis.call('ZREM', audit_shares, share)
  end
end

-- The share that loses an entry where the room that `share` is in has more than it may; nil where it has not.
local function fullest(share, most)
  local administrators = redis.call('ZCARD', share_list(ADMINISTRATORS))
  if share == ADMINISTRATORS then
    return administrators > most and ADMINISTRATORS or nil
  end
  local others = redis.call('ZCARD', audit_entries) - administrators
  return others > most and redis.call('ZREVRANGE', audit_shares, 0, 0)[1] or nil
end

local function drop_oldest(share)
  local oldest = redis.call('ZRANGE', share_list(share), 0, 0)[1]
  if oldest then
    redis.call('ZREM', share_list(share), oldest)
    redis.call('ZREMRANGEBYSCORE', audit_entries, oldest, oldest)
  end
  count_share(share)
end

local function note_in_log(entry, share, most)
  local last = redis.call('HGET', registry, 'noted') or 0
  local us = exact(math.max(now_us, last + 1))
  redis.call('HSET', registry, 'noted', us)
  redis.call('ZADD', audit_entries, us, us .. ' ' .. entry)
  redis.call('ZADD', share_list(share), us, us)
  count_share(share)
  for _ = 1, MOST_DROPPED do
    local giver = fullest(share, most)
    if not giver then
      return
    end
    drop_oldest(giver)
  end
end
