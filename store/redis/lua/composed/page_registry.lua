#!lua flags=allow-oom,no-writes
local registry = KEYS[1]; local turns = ARGV[1]; local name = ARGV[2]; local after = ARGV[3]; local most = tonumber(ARGV[4]); local ascending = tonumber(ARGV[5])
local shard = string.sub(turns, 1, -#'t:' - 1)


local place = (shard .. ('registry:' .. name))
local from = ascending == 1 and '-inf' or '+inf'
if after ~= '' then
  local score = redis.call('ZSCORE', place, after)
  if not score then
    return { 'missing' }
  end
  from = '(' .. score
end
local names
if ascending == 1 then
  names = redis.call('ZRANGE', place, from, '+inf', 'BYSCORE', 'LIMIT', 0, most)
else
  names = redis.call('ZRANGE', place, from, '-inf', 'BYSCORE', 'REV', 'LIMIT', 0, most)
end
return { 'ok', unpack(names) }
