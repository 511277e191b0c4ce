-- What was spent in some hours.
--
-- Keys:      clock
-- Arguments: first  the first hour, counted from 1970
--            last   the last one
--            most   after how many fields no further hour is looked at
-- Result:    {'ok', the hour behind the last one that was looked at, then HOUR, FIELD and VALUE of each (spending.lua)}
-- Invariant: nothing changes.

local told, hour = { 'ok', '' }, first
while hour <= last and #told < most * 3 do
  local fields = redis.call('HGETALL', shard_key('spent:' .. hour))
  for at = 1, #fields, 2 do
    told[#told + 1], told[#told + 2], told[#told + 3] = hour, fields[at], fields[at + 1]
  end
  hour = hour + 1
end
told[2] = hour
return told
