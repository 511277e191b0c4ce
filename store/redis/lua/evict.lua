--- include ending_logs
--- include eviction
-- Take away what was used least, to make room for a turn: below the caps, and in the server where it has no memory left.
--
-- Arguments: memory     how many bytes have to be free in the server, where it has a limit; 0 is none
--            stays      TENANT=RANK: how many of a tenant's leaves are known to have to stay, -1 for all of them, with
--                       spaces between, of some tenants
--            tree_rank  how many trees are known not to be the next to go
-- Result:    {'ok', evicted} | {'again', evicted, stays, tree_rank} to go on with | {'unarchived', evicted} until the archive
--            has more | {'full', evicted} when all that is left has to stay; evicted is how many turns went for what
--            (eviction.lua) | {'wait'} when memory that was freed is not there yet | {'short'} when no more may go in this
--            moment | {'closed'} when the server takes no turns, as its disk is nearly full (store/guard.py)
-- Invariant: takes no more than is missing at that moment, so several callers, or a retry after a lost reply, take no
--            more than one would. A server that lacks far more than the turn needs may have too little for a moment only:
--            a caller takes about what its turn needs, and within MOMENT_MS all of them a hundredth of the shard. What event logs
--            hold is taken from those of what has ended, and no conversation goes for what they hold beyond a part of the
--            server's memory: they will be gone soon, and a conversation for good.

local CLOSED = 1 -- the memory limit of a server that takes no turns
local ALL = -1 -- instead of a rank (choosing.lua)
local TOLD = 150 -- the most tenants of whose leaves is told what has to stay; more than are passed over (choosing.lua)
local MOMENT_MS = 1000
local MOMENT_PART = 100 -- what part of a shard may go in a moment
local LOGS_PART = 4 -- what part of the server's memory logs may have at the expense of conversations

-- How many bytes the server lacks until so many are free, its limit, and whether more is about to be free; nil where it
-- takes no turns.
local function missing(free)
  local memory = call('INFO', 'memory')
  local limit = tonumber(string.match(memory, 'maxmemory:(%d+)'))
  if limit == CLOSED then
    return nil
  end
  local used = tonumber(string.match(memory, 'used_memory:(%d+)'))
  local uncounted = tonumber(string.match(memory, 'mem_not_counted_for_evict:(%d+)') or 0)
  local freeing = tonumber(string.match(memory, 'lazyfree_pending_objects:(%d+)') or 0) > 0
  return limit > 0 and math.max(0, used - uncounted + free - limit) or 0, limit, freeing
end

-- Take logs of what has ended, for so many bytes; how many bytes are still for conversations to give.
local function without_logs(lacks, limit)
  local before = logged()
  if lacks > 0 then
    end_logs(before - lacks, budget)
  end
  local excess = logged() - limit / LOGS_PART
  return math.max(0, lacks - (before - logged()) - math.max(0, excess))
end

-- How many of `held` bytes may go in this moment. `short` has how many have to be left at its end.
local function may_go_now(held)
  local left = call('GET', shard_key('short'))
  if not left then
    left = held - math.max(room, held / MOMENT_PART)
    call('SET', shard_key('short'), exact(math.floor(left)), 'PX', MOMENT_MS)
  end
  return held - left
end

-- The known ranks of the tenants with the highest ones; others are looked at again.
local function told_of(known)
  local names, told = {}, {}
  for name in pairs(known) do
    names[#names + 1] = name
  end
  table.sort(names, function(one, other)
    return (known[one] == ALL and math.huge or known[one]) > (known[other] == ALL and math.huge or known[other])
  end)
  for at = 1, math.min(#names, TOLD) do
    told[at] = names[at] .. '=' .. exact(known[names[at]])
  end
  return table.concat(told, ' ')
end

local known = {}
for name, rank in string.gmatch(stays, '([^ =]+)=(-?%d+)') do
  known[name] = tonumber(rank)
end
local _, _, bytes_now = stored()
local most_bytes = math.huge
if memory > 0 then
  local lacks, limit, freeing = missing(memory)
  if not lacks then
    return { 'closed' }
  elseif lacks > 0 and freeing then
    return { 'wait' }
  elseif lacks > memory + room then
    lacks = math.min(memory + room, may_go_now(bytes_now + logged()))
    if lacks <= 0 then
      return { 'short' }
    end
  end
  most_bytes = bytes_now - without_logs(lacks, limit)
end
local root = parent ~= '' and call('HGET', key('node', tenant, parent), 'root') or ''
local verdict, next_rank = evict_until(root, math.min(most_bytes, most_before()), known, tree_rank)
local reply = reply_with_evicted(verdict)
if verdict == 'again' then
  reply[3], reply[4] = told_of(known), exact(next_rank)
end
return reply
