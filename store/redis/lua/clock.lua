-- Shared by the scripts that use a turn: the time, and the LRU's score.
-- Invariant: scores of a shard only rise, even when the server's clock steps back, so no two uses are equally
-- old.

local now_us -- it does not change while a script runs

local function begin_clock()
  local moment = call('TIME')
  now_us = moment[1] * 1000000 + moment[2]
end

-- A score has sixteen digits and Lua would print fourteen of them.
local function exact(number)
  return string.format('%d', number)
end

local function next_score(clock)
  local next_one = exact(now_us)
  local last = call('SET', clock, next_one, 'GET')
  if last and tonumber(last) >= tonumber(next_one) then
    next_one = exact(last + 1)
    call('SET', clock, next_one)
  end
  return next_one
end
