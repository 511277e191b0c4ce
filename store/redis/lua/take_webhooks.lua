--- include outbox
-- Take webhooks that are due, the longest due first, to send them. They stay, and are due again when the hold is over.
--
-- Arguments: token    names this call among its retries
--            most     how many to take at most
--            hold_ms  for how long nobody else is to take them
-- Result:    {'ok', and for each TENANT/DIGITS/STATUS, how often it was tried, this time included, and the ms at which
--            the response ended; with spaces between}
-- Invariant: none goes away, so whoever takes one and dies delays it at most. A retry returns what the first call took.
--            What has no valid name or no date, which only somebody else can have put here, is removed. One that seems
--            to be put off for longer than anybody does was so when the clock was ahead, and is due.

local ages, tries = shard_key('outbox-ages'), shard_key('outbox-tries')
local note = shard_key('outbox-take:' .. token)

local AHEAD_MS = 7200000 -- twice as long as the longest pause

local function hold_those_due()
  local held, due = {}, call('ZRANGE', outbox, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most)
  if #due == 0 then
    due = call('ZRANGE', outbox, now_ms + AHEAD_MS, '+inf', 'BYSCORE', 'LIMIT', 0, most)
  end
  for _, member in ipairs(due) do
    if string.find(member, '^[^/ ]+/%x+/%l+$') and call('ZSCORE', ages, member) then
      call('ZADD', outbox, now_ms + hold_ms, member)
      call('HINCRBY', tries, member, 1)
      held[#held + 1] = member
    else
      drop_webhooks(member)
    end
  end
  if #held > 0 then
    call('SET', note, table.concat(held, ' '), 'PX', hold_ms)
  end
  return table.concat(held, ' ')
end

local taken = { 'ok' }
for member in string.gmatch(call('GET', note) or hold_those_due(), '%S+') do
  local ended = call('ZSCORE', ages, member)
  if ended then
    taken[#taken + 1] = member .. ' ' .. (call('HGET', tries, member) or '1') .. ' ' .. ended
  end
end
return taken
