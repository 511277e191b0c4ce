#!lua flags=allow-oom
local older = KEYS[1]; local turns = ARGV[1]; local before = ARGV[2]; local after = ARGV[3]

if redis.call('GET', older) ~= before then
  return { 'other' }
elseif after == '' then
  redis.call('DEL', older)
else
  redis.call('SET', older, after)
end
return { 'ok' }
