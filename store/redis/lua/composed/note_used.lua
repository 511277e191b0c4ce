#!lua flags=allow-oom
local registry = KEYS[1]; local registry_used = KEYS[2]; local turns = ARGV[1]; local used = ARGV[2]

for name, seconds in pairs(cjson.decode(used)) do
  if redis.call('HEXISTS', registry, name) == 1 then
    redis.call('HSET', registry_used, name, string.format('%.0f', seconds))
  end
end
return { 'ok' }
