-- Shared by the scripts that use a turn: the time, and the LRU's score.
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
