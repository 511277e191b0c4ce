#!lua flags=allow-oom,no-writes
local job = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local token = ARGV[4]

if not (redis.call('HGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'token') == token) then
  return { 'lost' }
end
local found = { 'ok' }
for id in string.gmatch(redis.call('HGET', job, 'steers') or '', '%S+') do
  found[#found + 1] = id
  found[#found + 1] = redis.call('HGET', job, 'said:' .. id)
end
return found
