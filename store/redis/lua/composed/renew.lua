#!lua flags=allow-oom
local leases = KEYS[1]; local turns = ARGV[1]; local held = ARGV[2]; local lease_ms = tonumber(ARGV[3])
local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)


local lost, steered = { 'ok', 0 }, {}
for member, token in string.gmatch(held, '(%S+) (%S+)') do
  local tenant, digits
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  local holder, heard, steers = unpack(redis.call('HMGET', job, 'token', 'heard', 'steers'))
  if holder == token then
    do
      local job, heard = job, heard
      if heard == 'no' then
        local tries, progressed = unpack(redis.call('HMGET', job, 'tries', 'progressed'))
        redis.call('HSET', job, 'tries', (progressed == '1' and 1 or tries + 1), 'progressed', 0)
      end
      if heard and heard ~= 'yes' then
        redis.call('HSET', job, 'heard', 'yes')
      end
    end
    redis.call('ZADD', leases, now_ms + lease_ms, member)
    if steers then
      steered[#steered + 1] = member
    end
  else
    lost[#lost + 1] = member
    lost[2] = lost[2] + 1
  end
end
for _, member in ipairs(steered) do
  lost[#lost + 1] = member
end
return lost
