#!lua flags=allow-oom
local node = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local spent = ARGV[4]; local marked_ms = tonumber(ARGV[5])
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local MOST_SPENDERS, HOUR_US = 1000, 3600000000


if redis.call('HEXISTS', node, 'digest') == 0
  and redis.call('SET', (shard .. ('spent-by:' .. digits)), '1', 'NX', 'PX', marked_ms) then
  do
    local tenant, spent = tenant, spent
    if spent ~= '' then
      local seconds, put_in, cached, put_out, reasoning, whose = string.match(spent, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
      local hour, field = (shard .. ('spent:' .. math.floor(now_us / HOUR_US))), tenant .. '/' .. whose
      local known = redis.call('HGET', hour, field)
      local fields = known and 1 or redis.call('HLEN', hour)
      if not known and fields >= MOST_SPENDERS then
        field = '//'
        known = redis.call('HGET', hour, field)
      end
      local requests = 1
      if known then
        local had = { string.match(known, '^(%d+) (%d+) (%d+) (%d+) (%d+)') }
        requests, put_in, cached = requests + (had[1] or 0), put_in + (had[2] or 0), cached + (had[3] or 0)
        put_out, reasoning = put_out + (had[4] or 0), reasoning + (had[5] or 0)
      end
      redis.call('HSET', hour, field, string.format('%.0f %.0f %.0f %.0f %.0f', requests, put_in, cached, put_out, reasoning))
      if fields == 0 then
        redis.call('PEXPIRE', hour, seconds * 1000)
      end
    end
  end
end
return { 'ok' }
