--- include clock
-- Shared by the scripts that ask whether a tree is still there for anyone.
-- Arguments: idle_us  for how long a tree may be unused; 0: for ever
-- Invariant: a tree that was forgotten has the score 0, and never another. One that is gone, or was not used for
-- `idle_us` where that isn't 0, is unknown from then on, before the sweeper takes it away; none of it is kept by a pin.
-- A tree with a job is never idle, however long that waits; its root counts its jobs. Nor is one in which a conversation
-- stands, until a sweep has taken that. Nor is any as long as the shard has an archive: what is still here is used again, and
-- what a sweep has taken is read there.

local function has_jobs(tenant, root)
  return call('HEXISTS', key('node', tenant, root), 'jobs') == 1
end

-- The digits of a conversation that stands in a tree, or nil; true where there are too many leaves to look at. Few trees had
-- one ever, and only of those that nobody used for long it is asked.
local function conversation_in(tenant, root)
  local MOST_LEAVES = 10000 -- the most leaves of a tree among which one is looked for; in more, it is taken for granted
  local CONVERSATIONS = '??636f6e766572*' -- their digits: the shard, and CONVERSATION_MARK (store/keys.py)
  if call('HEXISTS', key('node', tenant, root), 'named') == 0 then
    return nil
  end
  local cursor, seen = '0', 0
  repeat
    local page = call('SSCAN', key('tree', tenant, root), cursor, 'MATCH', CONVERSATIONS, 'COUNT', 1000)
    for _, digits in ipairs(page[2]) do
      if call('HEXISTS', key('node', tenant, digits), 'deleted') == 0 then
        return digits
      end
    end
    cursor, seen = page[1], seen + 1000
  until cursor == '0' or seen >= MOST_LEAVES
  return cursor ~= '0' or nil
end

local function gone(tenant, root, idle_us)
  local used = tonumber(call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us - idle_us or call('HEXISTS', shard_key('usage'), 'archive') == 1) then
    return false
  end
  return used == 0 or not (has_jobs(tenant, root) or conversation_in(tenant, root))
end
