#!lua
local clock = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local record = ARGV[4]; local before = ARGV[5]; local most = tonumber(ARGV[6]); local kept_ms = tonumber(ARGV[7])
local shard = string.sub(turns, 1, -#'t:' - 1)


local containers = (shard .. ('containers:' .. tenant))
local known = redis.call('HGET', containers, digits)
if not known and before ~= '' then
  return { 'missing' }
elseif known and known ~= before and known ~= record then
  return { 'moved' }
elseif not known and redis.call('HLEN', containers) >= most then
  return { 'full' }
end
redis.call('HSET', containers, digits, record)
redis.call('PEXPIRE', containers, kept_ms)
return { 'ok' }
