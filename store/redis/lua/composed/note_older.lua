#!lua flags=allow-oom
local clock = KEYS[1]; local trees = KEYS[2]; local turns = ARGV[1]; local tree = ARGV[2]; local members = ARGV[3]
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local function next_score(clock)
  local next_one = (string.format('%.0f', now_us))
  local last = redis.call('SET', clock, next_one, 'GET')
  if last and tonumber(last) >= tonumber(next_one) then
    next_one = (string.format('%.0f', (last + 1)))
    redis.call('SET', clock, next_one)
  end
  return next_one
end
local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0

local tenant, root
do
  local member = tree
  local slash = string.find(member, '/', 1, true)
  tenant, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
end
local used = redis.call('ZSCORE', trees, tree) or '0'
for digits in string.gmatch(used ~= '0' and members or '', '%x+') do
  local found, fleeting = unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'fleeting'))
  if found == root and not fleeting and redis.call('EXISTS', (turns .. tenant .. ':' .. 'job' .. ':' .. digits)) == 0
    and not redis.call('ZSCORE', ((shard .. ('changes:' .. tenant .. '/' .. root))), '+' .. digits) then
    do
      local tenant, root, member, score = tenant, root, '+' .. digits, next_score(clock)
      local after = not plain and redis.call('GET', (shard .. 'archive'))
      if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
        and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
        redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
      end
    end
  end
end
return { 'ok', used }
