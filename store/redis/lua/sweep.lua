--- include idle
--- include removal
--- include using
-- Remove trees that are forgotten or unused for too long, and tombstones whose run never ended.
--
-- Arguments: only      TENANT/ROOT of the one tree to sweep, or '' for all
--            named_us  the same for one in which a conversation stands, no shorter
--            grace_us  for how long one that was unused for longer is kept, although it is unknown
--            clock_us  the time by the caller's own clock
--            budget    the most turns that this call removes
-- Result:    {'ok', doubt, trees, expired} when none is left | {'again', doubt, trees, expired} when some may be; doubt is ''
--            or why no tree is taken for being unused: 'clock' as the two clocks differ, 'gap' as nobody swept for long
--            until lately; how many trees would be unknown without it; and how many turns went for being unused
-- Invariant: takes nothing of a tree that somebody may still know. A tree goes for being unused only where both clocks
--            agree, and sweeps have followed each other for as long as the grace: so neither a clock that jumps nor a
--            store that was off, or was restored from a backup, has anything deleted before somebody could use it. Where the
--            shard has an archive, it goes only if that has all of it; else it is archived next, and looked at again
--            some GAP_US later. Nothing of that is noted: the archive keeps it.
--
-- A conversation that is kept for longer than its tree would be is met again some DAY_US later. Until then its tree has a score
-- that was never a use, as has one that the archive lacks: its root notes that as `idle_score`, and in `idle_since` the last use.
--
-- The hash `sweeps` has the time of the `last` one and when those `began` that followed each other, in µs.

local DAY_US = 86400 * 1000000
local GAP_US = 3600 * 1000000 -- the most that clocks may differ, and that sweeps may lie apart

-- Why nothing may be taken for being unused, or ''.
local function doubted()
  local sweeps, now = shard_key('sweeps'), now_us
  if math.abs(now - clock_us) > GAP_US then
    return 'clock'
  end
  local last, began = unpack(call('HMGET', sweeps, 'last', 'began'))
  if not last or not began or math.abs(now - last) > GAP_US then
    began = exact(now)
  end
  call('HSET', sweeps, 'last', exact(now), 'began', began)
  return now - began < grace_us and 'gap' or ''
end

local doubt, idle = '', 0
if only == '' and idle_us > 0 then
  doubt = doubted()
  idle = doubt ~= '' and call('ZCOUNT', trees, '(0', exact(now_us - idle_us)) or 0
end
local takes_unused = only == '' and idle_us > 0 and doubt == ''
local since = takes_unused and now_us - idle_us - grace_us or 0

-- Look at an unused tree again after so many µs, with the last use that it had.
local function postpone(tenant, root, used, after_us)
  local score = exact(math.min(since + after_us, now_us))
  use_tree(tenant, root, score)
  call('HSET', key('node', tenant, root), 'idle_score', score, 'idle_since', exact(used))
end

-- Whether an unused tree has to stay for now; it is looked at again then. `conversation` says whether one stands in it.
local function stays(tenant, root, score, conversation)
  local used, given, before = score, unpack(call('HMGET', key('node', tenant, root), 'idle_score', 'idle_since'))
  if given and tonumber(given) == score then
    used = tonumber(before)
  end
  if conversation and not (named_us > 0 and used <= now_us - named_us - grace_us) then
    postpone(tenant, root, used, DAY_US)
    return true
  elseif is_unarchived_tree(tenant, root) then
    postpone(tenant, root, used, GAP_US)
    return true
  end
  return false
end

-- Its tenant, its digits, its turn where that was read, and whether the tree goes for being unused. Nothing where there
-- is none, or the budget ends before one is found.
local function leaf_of_a_tree_that_is_gone()
  while budget > 0 do
    local member = only ~= '' and only or call('ZRANGE', trees, 0, 0)[1]
    local used = tonumber(member and call('ZSCORE', trees, member) or nil)
    if not used or used > since then
      return nil
    end
    local tenant, root = split(member)
    local busy = used > 0 and has_jobs(tenant, root)
    local conversation = used > 0 and not busy and conversation_in(tenant, root)
    if busy then
      use_tree(tenant, root, next_score(shard_key('clock'))) -- it is in use: look at others first
    elseif used == 0 then
      return tenant, call('SRANDMEMBER', key('tree', tenant, root)), nil, false
    elseif not stays(tenant, root, used, conversation) then -- without its conversations the tree is as idle as others
      return tenant, type(conversation) == 'string' and conversation or call('SRANDMEMBER', key('tree', tenant, root)),
        nil, true
    end
    budget = budget - 1
  end
end

local expired = 0
while budget > 0 do
  local tenant, digits, turn, unused = leaf_of_a_tree_that_is_gone()
  if not digits and budget > 0 then
    if only == '' then
      tenant, digits, turn = unneeded_tombstone()
    end
    if not digits then
      record()
      return { 'ok', doubt, idle, expired }
    end
  end
  if digits then
    local taken = take(tenant, digits, budget, turn)
    expired = expired + (unused and taken or 0)
    budget = budget - taken
  end
end
record()
return { 'again', doubt, idle, expired }
