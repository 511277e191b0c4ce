--- include clock
-- Change records and lists of the registry if all records are what the caller made the change of, with entries in the
-- audit log.
--
-- Arguments: changes       NAME, BEFORE and AFTER of each record, empty where there is none; JSON
--            places        LIST, NAME and MOST of each name in a list: added if that has fewer than MOST, or taken out if
--                          MOST is 0; JSON
--            mark          what only this call has
--            entries       what the audit log is given, in its order; JSON
--            share         whose share of the log they are of
--            most_entries  how many entries administrators have there, and all others together
--            tell          what those are told who listen; '' for nothing
-- Result:    {'ok'} | {'moved', name} of a record that isn't BEFORE | {'full', list}
-- Invariant: all happens, or nothing. A retry changes nothing, and is 'ok', also behind some changes of others.
--
-- Administrators have a room of their own in the audit log, and all other shares one together. Where that is full, the share
-- with the most entries loses its oldest. So a share with no more than its part of the room never loses one, whatever others
-- do. No two entries are of the same microsecond, and a later one is of a later one, though the server's clock steps back.
-- An entry is a member 'US RECORD' of `audit_entries`, and a member US of the list of its share; US is the score of both.

local ADMINISTRATORS = '@administrators'
local MOST_DROPPED = 4 -- how many go at most for one that comes: where the bound was lowered there are more to go

local function share_list(share)
  return shard_key('audit-of:' .. share)
end

local function count_share(share)
  local held = call('ZCARD', share_list(share))
  if share == ADMINISTRATORS then
    return
  elseif held > 0 then
    call('ZADD', audit_shares, held, share)
  else
    call('ZREM', audit_shares, share)
  end
end

-- The share that loses an entry where the room that `share` is in has more than it may; nil where it has not.
local function fullest(share, most)
  local administrators = call('ZCARD', share_list(ADMINISTRATORS))
  if share == ADMINISTRATORS then
    return administrators > most and ADMINISTRATORS or nil
  end
  local others = call('ZCARD', audit_entries) - administrators
  return others > most and call('ZREVRANGE', audit_shares, 0, 0)[1] or nil
end

local function drop_oldest(share)
  local oldest = call('ZRANGE', share_list(share), 0, 0)[1]
  if oldest then
    call('ZREM', share_list(share), oldest)
    call('ZREMRANGEBYSCORE', audit_entries, oldest, oldest)
  end
  count_share(share)
end

local function note_in_log(entry, share, most)
  local last = call('HGET', registry, 'noted') or 0
  local us = exact(math.max(now_us, last + 1))
  call('HSET', registry, 'noted', us)
  call('ZADD', audit_entries, us, us .. ' ' .. entry)
  call('ZADD', share_list(share), us, us)
  count_share(share)
  for _ = 1, MOST_DROPPED do
    local giver = fullest(share, most)
    if not giver then
      return
    end
    drop_oldest(giver)
  end
end

local REMEMBERED = 64 -- the marks of so many changes are known, of which all are as long as this one's

local made = call('HGET', registry, 'last') or ''
if string.find(made, mark, 1, true) then
  return { 'ok' }
end
changes, places = cjson.decode(changes), cjson.decode(places)
for _, change in ipairs(changes) do
  if (call('HGET', registry, change[1]) or '') ~= change[2] then
    return { 'moved', change[1] }
  end
end
for _, place in ipairs(places) do
  local list = shard_key('registry:' .. place[1])
  if place[3] > 0 and not call('ZSCORE', list, place[2]) and call('ZCARD', list) >= place[3] then
    return { 'full', place[1] }
  end
end
call('HSET', registry, 'last', mark .. string.sub(made, 1, (REMEMBERED - 1) * #mark))
for _, change in ipairs(changes) do
  if change[3] == '' then
    call('HDEL', registry, change[1])
    call('HDEL', registry_used, change[1])
  else
    call('HSET', registry, change[1], change[3])
  end
end
for _, place in ipairs(places) do
  local list = shard_key('registry:' .. place[1])
  if place[3] > 0 then
    call('ZADD', list, 'NX', call('HINCRBY', registry, 'count', 1), place[2])
  else
    call('ZREM', list, place[2])
  end
end
for _, entry in ipairs(cjson.decode(entries)) do
  note_in_log(entry, share, most_entries)
end
if tell ~= '' then
  call('SPUBLISH', registry_news, tell)
end
return { 'ok' }
