#!lua flags=allow-oom,no-writes
local clock = KEYS[1]; local turns = ARGV[1]; local first = tonumber(ARGV[2]); local last = tonumber(ARGV[3]); local most = tonumber(ARGV[4])
local shard = string.sub(turns, 1, -#'t:' - 1)


local told, hour = { 'ok', '' }, first
while hour <= last and #told < most * 3 do
  local fields = redis.call('HGETALL', (shard .. ('spent:' .. hour)))
  for at = 1, #fields, 2 do
    told[#told + 1], told[#told + 2], told[#told + 3] = hour, fields[at], fields[at + 1]
  end
  hour = hour + 1
end
told[2] = hour
return told
