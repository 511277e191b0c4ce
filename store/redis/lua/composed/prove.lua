#!lua flags=allow-oom
local clock = KEYS[1]; local turns = ARGV[1]; local takes_turns = ARGV[2]

local CLOSED = '1'

if takes_turns == '1' and string.match(redis.call('INFO', 'memory'), 'maxmemory:(%d+)') == CLOSED then
  return { 'closed' }
end
return { 'ok' }
