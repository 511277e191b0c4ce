#!lua flags=allow-oom
local secret = KEYS[1]; local turns = ARGV[1]; local made = ARGV[2]

redis.call('SET', secret, made, 'NX')
local found = redis.call('GET', secret)
if #found ~= #made then
  return { 'damaged', found }
end
return { 'ok', found }
