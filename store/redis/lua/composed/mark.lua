#!lua flags=allow-oom
local clock = KEYS[1]; local turns = ARGV[1]; local there = ARGV[2]
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

local reply = { 'ok' }
for member, digest in string.gmatch(there, '(%S+)=(%S+)') do
  local own, at
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    own, at = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  local stored, submitted = unpack(redis.call('HMGET', (turns .. own .. ':' .. 'node' .. ':' .. at), 'digest', 'submission'))
  local found = stored == digest or submitted == digest
  if digest == 'ended' then
    found = not stored or stored ~= submitted
  end
  if not found then
    reply[#reply + 1] = member
  end
end
next_score(clock)
return reply
