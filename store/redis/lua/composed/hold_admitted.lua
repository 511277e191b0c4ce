#!lua flags=allow-oom
local reservations = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local held = ARGV[3]; local held_ms = tonumber(ARGV[4])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local KEPT_MS = 33 * 86400000

local reserved = (shard .. ('reserved:' .. tenant))


local looked, ends = (string.format('%.0f', (now_us / 1000 + held_ms))), (string.format('%.0f', (now_us / 1000 + 2 * held_ms)))
for digits in string.gmatch(held, '%S+') do
  local known = redis.call('HGET', reserved, digits)
  if known then
    redis.call('PEXPIRE', reserved, KEPT_MS)
    redis.call('ZADD', reservations, 'XX', looked, tenant .. '/' .. digits)
    for _, each in ipairs(cjson.decode(known).taken) do
      if each[2] == 'parallel' then
        redis.call('ZADD', ((shard .. ('parallel:' .. tenant .. '/' .. (each[1])))), ends, digits)
      end
    end
  else
    redis.call('ZREM', reservations, tenant .. '/' .. digits)
  end
end
return { 'ok' }
