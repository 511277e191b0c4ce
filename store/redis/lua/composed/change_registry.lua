#!lua flags=allow-oom
local registry = KEYS[1]; local registry_used = KEYS[2]; local audit_entries = KEYS[3]; local audit_shares = KEYS[4]; local registry_news = KEYS[5]; local turns = ARGV[1]; local changes = ARGV[2]; local places = ARGV[3]; local mark = ARGV[4]; local entries = ARGV[5]; local share = ARGV[6]; local most_entries = tonumber(ARGV[7]); local tell = ARGV[8]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local ADMINISTRATORS = '@administrators'
local MOST_DROPPED = 4

local function count_share(share)
  local held = redis.call('ZCARD', ((shard .. ('audit-of:' .. share))))
  if share == ADMINISTRATORS then
    return
  elseif held > 0 then
    redis.call('ZADD', audit_shares, held, share)
  else
    redis.call('ZREM', audit_shares, share)
  end
end

local function fullest(share, most)
  local administrators = redis.call('ZCARD', ((shard .. ('audit-of:' .. ADMINISTRATORS))))
  if share == ADMINISTRATORS then
    return administrators > most and ADMINISTRATORS or nil
  end
  local others = redis.call('ZCARD', audit_entries) - administrators
  return others > most and redis.call('ZREVRANGE', audit_shares, 0, 0)[1] or nil
end

local function note_in_log(entry, share, most)
  local last = redis.call('HGET', registry, 'noted') or 0
  local us = (string.format('%.0f', (math.max(now_us, last + 1))))
  redis.call('HSET', registry, 'noted', us)
  redis.call('ZADD', audit_entries, us, us .. ' ' .. entry)
  redis.call('ZADD', ((shard .. ('audit-of:' .. share))), us, us)
  count_share(share)
  for _ = 1, MOST_DROPPED do
    local giver = fullest(share, most)
    if not giver then
      return
    end
    do
      local share = giver
      local oldest = redis.call('ZRANGE', ((shard .. ('audit-of:' .. share))), 0, 0)[1]
      if oldest then
        redis.call('ZREM', ((shard .. ('audit-of:' .. share))), oldest)
        redis.call('ZREMRANGEBYSCORE', audit_entries, oldest, oldest)
      end
      count_share(share)
    end
  end
end

local REMEMBERED = 64

local made = redis.call('HGET', registry, 'last') or ''
if string.find(made, mark, 1, true) then
  return { 'ok' }
end
changes, places = cjson.decode(changes), cjson.decode(places)
for _, change in ipairs(changes) do
  if (redis.call('HGET', registry, change[1]) or '') ~= change[2] then
    return { 'moved', change[1] }
  end
end
for _, place in ipairs(places) do
  local list = (shard .. ('registry:' .. place[1]))
  if place[3] > 0 and not redis.call('ZSCORE', list, place[2]) and redis.call('ZCARD', list) >= place[3] then
    return { 'full', place[1] }
  end
end
redis.call('HSET', registry, 'last', mark .. string.sub(made, 1, (REMEMBERED - 1) * #mark))
for _, change in ipairs(changes) do
  if change[3] == '' then
    redis.call('HDEL', registry, change[1])
    redis.call('HDEL', registry_used, change[1])
  else
    redis.call('HSET', registry, change[1], change[3])
  end
end
for _, place in ipairs(places) do
  local list = (shard .. ('registry:' .. place[1]))
  if place[3] > 0 then
    redis.call('ZADD', list, 'NX', redis.call('HINCRBY', registry, 'count', 1), place[2])
  else
    redis.call('ZREM', list, place[2])
  end
end
for _, entry in ipairs(cjson.decode(entries)) do
  note_in_log(entry, share, most_entries)
end
if tell ~= '' then
  redis.call('SPUBLISH', registry_news, tell)
end
return { 'ok' }
