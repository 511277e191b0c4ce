#!lua flags=allow-oom
local unarchived = KEYS[1]; local turns = ARGV[1]; local budget = tonumber(ARGV[2])
local shard = string.sub(turns, 1, -#'t:' - 1)


redis.call('DEL', (shard .. 'archive'), (shard .. 'older'), (shard .. 'archive-away'), (shard .. 'archive-failed'))
for _, member in ipairs(redis.call('ZRANGE', unarchived, 0, budget - 1)) do
  local tenant, root
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    tenant, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  redis.call('UNLINK', ((shard .. ('changes:' .. tenant .. '/' .. root))))
  redis.call('ZREM', unarchived, member)
end
local more = redis.call('EXISTS', unarchived) == 1
return { more and 'again' or 'ok' }
