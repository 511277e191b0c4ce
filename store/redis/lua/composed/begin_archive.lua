#!lua flags=allow-oom
local trees = KEYS[1]; local turns = ARGV[1]; local after_ms = tonumber(ARGV[2])
local shard = string.sub(turns, 1, -#'t:' - 1)


if redis.call('EXISTS', (shard .. 'archive')) == 0 and redis.call('EXISTS', trees) == 1 then
  redis.call('SET', (shard .. 'older'), '0')
end
redis.call('SET', (shard .. 'archive'), (string.format('%.0f', after_ms)))
return { 'ok' }
