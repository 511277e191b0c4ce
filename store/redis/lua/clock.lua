-- Shared by the scripts that use a turn: the time, the LRU's score, and the touch itself.
-- Invariant: scores of a shard only rise, even when the server's clock steps back, so no two uses are equally
-- old.

local now -- it does not change while a script runs

local function now_us()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end

-- A score has sixteen digits and Lua would print fourteen of them.
local function exact(number)
  return string.format('%.0f', number)
end

local function next_score(clock)
  local score = exact(now_us())
  local last = redis.call('SET', clock, score, 'GET')
  if last and tonumber(last) >= tonumber(score) then
    score = exact(last + 1)
    redis.call('SET', clock, score)
  end
  return score
end

-- XX: an inner turn has no place among the leaves and must not get one by being used; its own score counts once it is a
-- leaf.
local function touch(root)
  local score = next_score(clock)
  redis.call('HSET', node, 'touched', score)
  redis.call('ZADD', leaves .. ':' .. tenant, 'XX', score, digits)
  redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
end
