#!lua flags=allow-oom,no-writes
local trees = KEYS[1]; local turns = ARGV[1]; local tenant = ARGV[2]; local ends = ARGV[3]; local seen = ARGV[4]; local most = tonumber(ARGV[5])

local SHOWN = { 'parent', 'depth', 'status', 'created', 'touched', 'children', 'response_bytes', 'deleted' }

local known, left, rest, reply = {}, most, {}, { 'ok', '' }
local nodes, call, last = (turns .. tenant .. ':' .. 'node' .. ':' .. ''), redis.call, #SHOWN
for digits in string.gmatch(seen, '%x+') do
  known[digits] = true
end
for digits in string.gmatch(ends, '%x+') do
  while digits ~= '' and not known[digits] and left > 0 do
    left = left - 1
    known[digits] = true
    local found = call('HMGET', nodes .. digits, unpack(SHOWN))
    if not found[1] then
      digits = ''
    else
      local parent = found[1]
      found[1] = parent == '' and '-' or parent
      for at = 2, last - 1 do
        found[at] = found[at] or '0'
      end
      found[last] = found[last] and 'D' or '-'
      reply[#reply + 1] = digits .. ' ' .. table.concat(found, ' ')
      digits = parent
    end
  end
  if digits ~= '' and not known[digits] then
    rest[#rest + 1] = digits
  end
end
reply[2] = table.concat(rest, ' ')
return reply
