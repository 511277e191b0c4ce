#!lua flags=allow-oom
local leases = KEYS[1]; local turns = ARGV[1]; local token = ARGV[2]; local not_after = tonumber(ARGV[3]); local lease_ms = tonumber(ARGV[4]); local first_ms = tonumber(ARGV[5]); local retry_ms = tonumber(ARGV[6]); local most = tonumber(ARGV[7]); local most_level = tonumber(ARGV[8])
local function key(family, tenant, digits)
  return turns .. tenant .. ':' .. family .. ':' .. digits
end

local shard = string.sub(turns, 1, -#'t:' - 1)

local function split(member)
  local slash = string.find(member, '/', 1, true)
  return string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
end
local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local now_ms = math.floor(now_us / 1000)

local ALL_TENANTS = '*'
local LEVELS = 4
local RESUMED = 0
local MOST_CANCELLED = 16
local LOOKED_MS = 3600000
local MOST_READ = 500
local MOST_TOLD = 8

local function dequeue(level, tenant, digits)
  local queued, member = ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), tenant .. '/' .. digits
  local since = redis.call('ZSCORE', queued, member)
  redis.call('ZREM', queued, member)
  redis.call('ZREM', ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or '')), digits)
  local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  local bytes = redis.call('HGET', job, 'waiting_bytes')
  if bytes then
    redis.call('HDEL', job, 'waiting_bytes')
    do
      local tenant, bytes = tenant, 0 - bytes
      local sums = (shard .. 'waiting-bytes')
      for _, whose in ipairs({ tenant, ALL_TENANTS }) do
        if redis.call('HINCRBY', sums, whose, bytes) <= 0 then
          redis.call('HDEL', sums, whose)
        end
      end
    end
  end
  return since
end

local function next_at(level)
  local turn = ((shard .. 'turn') .. ':' .. level .. (nil and ':' .. nil or ''))
  for _ = 1, MOST_READ do
    local tenant = redis.call('ZRANGE', turn, 0, 0)[1]
    if not tenant then
      return nil
    end
    local digits = redis.call('ZRANGE', ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or '')), 0, 0)[1]
    if digits then
      redis.call('ZADD', turn, redis.call('ZRANGE', turn, -1, -1, 'WITHSCORES')[2] + 1, tenant)
      return tenant, digits, dequeue(level, tenant, digits)
    end
    redis.call('ZREM', turn, tenant)
  end
end

local function next_tenants()
  local found = {}
  for level = 0, LEVELS - 1 do
    for _, tenant in ipairs(redis.call('ZRANGE', ((shard .. 'turn') .. ':' .. level .. (nil and ':' .. nil or '')), 0, MOST_TOLD - 1)) do
      local line = ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or ''))
      local digits = redis.call('ZRANGE', line, 0, 0)[1]
      local since = digits and redis.call('ZSCORE', ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), tenant .. '/' .. digits)
      if since then
        found[#found + 1] =
          string.format('%s %d %d %s', tenant, level, redis.call('ZCARD', line), (string.format('%.0f', (now_ms - since))))
      end
    end
  end
  return found
end

local function lease(tenant, digits, token, lease_ms, heard)
  local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  redis.call('HSET', job, 'token', token, 'level', '', 'lease_ms', lease_ms, 'heard', heard)
  redis.call('ZADD', (shard .. 'leases'), now_ms + lease_ms, tenant .. '/' .. digits)
  return redis.call('HINCRBY', job, 'epoch', 1)
end

local function late_leases(lease_ms)
  local leases = (shard .. 'leases')
  local late = redis.call('ZRANGE', leases, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, MOST_READ)
  local ahead =
    redis.call('ZRANGE', leases, now_ms + 2 * lease_ms, '+inf', 'BYSCORE', 'LIMIT', 0, MOST_READ, 'WITHSCORES')
  for at = 1, #ahead, 2 do
    local own_ms = redis.call('HGET', key('job', split(ahead[at])), 'lease_ms') or 0
    if tonumber(ahead[at + 1]) >= now_ms + 2 * own_ms then
      late[#late + 1] = ahead[at]
    end
  end
  return late
end

local function spare(leases, member, looked)
  local ended, job = tonumber(redis.call('ZSCORE', leases, member)), key('job', split(member))
  local heard, own_ms = unpack(redis.call('HMGET', job, 'heard', 'lease_ms'))
  local grace = (own_ms or 0) / 2
  if grace == 0 or not looked or ended <= looked or ended > now_ms or now_ms - looked <= grace or (heard and heard ~= 'yes') then
    return false
  end
  redis.call('HSET', job, 'heard', 'spared')
  redis.call('ZADD', leases, now_ms + grace, member)
  return true
end

local function rescue(lease_ms)
  local rescued, cancelled = 0, {}
  local looked = tonumber(redis.call('SET', (shard .. 'looked'), (string.format('%.0f', now_ms)), 'PX', LOOKED_MS, 'GET') or nil)
  for _, member in ipairs(late_leases(lease_ms)) do
    local tenant, digits
    do
      local member = member
      local slash = string.find(member, '/', 1, true)
      tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
    end
    if not spare((shard .. 'leases'), member, looked) then
      rescued = rescued + 1
      if redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'status') ~= 'cancelled' then
        do
          local tenant, digits, gives_way = tenant, digits, nil
          local sequence, own = unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'sequence', 'own'))
          local ended = redis.call('ZSCORE', (shard .. 'leases'), tenant .. '/' .. digits)
          redis.call('ZREM', (shard .. 'leases'), tenant .. '/' .. digits)
          do
            local tenant, digits, span = tenant, digits, ended and now_ms - ended or 0
            local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
            local started = tonumber(redis.call('HGET', job, 'started') or nil)
            if started and span > 0 then
              redis.call('HSET', job, 'started', (string.format('%.0f', (math.min(started + span, now_ms)))))
            end
          end
          if sequence then
            do
              local level, tenant, digits, sequence, gave_way = gives_way and own or RESUMED, tenant, digits, sequence, gives_way
              local turn = ((shard .. 'turn') .. ':' .. level .. (nil and ':' .. nil or ''))
              if not redis.call('ZSCORE', turn, tenant) then
                local first, last = redis.call('ZRANGE', turn, 0, 0, 'WITHSCORES')[2], redis.call('ZRANGE', turn, -1, -1, 'WITHSCORES')[2]
                redis.call('ZADD', turn, gave_way and (last or -1) + 1 or (first or 1) - 1, tenant)
              end
              redis.call('ZADD', ((shard .. 'line') .. ':' .. level .. (tenant and ':' .. tenant or '')), sequence, digits)
              redis.call('ZADD', ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or '')), now_ms, tenant .. '/' .. digits)
              redis.call('HSET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'level', level, 'token', '')
              do
                local word = 'work'
                redis.call('SPUBLISH', (shard .. 'control'), word)
              end
            end
          end
        end
      elseif #cancelled < MOST_CANCELLED then
        cancelled[#cancelled + 1] = member
      end
    end
  end
  return rescued, cancelled
end

if now_ms > not_after then
  return { 'late', (string.format('%.0f', now_ms)) }
end

local function described(member, waited)
  local tenant, digits
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  local submitted, started, tries, progressed, heard, epoch, last, own = unpack(redis.call('HMGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits),
    'submitted', 'started', 'tries', 'progressed', 'heard', 'epoch', 'last', 'own'))
  local status = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'status')
  if heard == 'no' then
    tries = (progressed == '1' and 1 or tries + 1)
  end
  return string.format('%s %s %s %s %s %s %s %s %s', member, epoch, status, own, tries, last, (string.format('%.0f', (now_ms - submitted))),
    (string.format('%.0f', (now_ms - started))), waited)
end

local function is_job(tenant, digits)
  local job, node = (turns .. tenant .. ':' .. 'job' .. ':' .. digits), (turns .. tenant .. ':' .. 'node' .. ':' .. digits)
  return redis.call('HEXISTS', job, 'submitted') == 1 and redis.call('HEXISTS', node, 'status') == 1
end

local function take_job(tenant, digits, waited)
  local node, job = (turns .. tenant .. ':' .. 'node' .. ':' .. digits), (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
  lease(tenant, digits, token, lease_ms, 'no')
  redis.call('ZADD', leases, now_ms + first_ms, tenant .. '/' .. digits)
  local last, accepted = unpack(redis.call('HMGET', job, 'last', 'accepted'))
  if last == accepted then
    redis.call('HSET', job, 'started', (string.format('%.0f', now_ms)))
  else
    redis.call('HSETNX', job, 'started', (string.format('%.0f', now_ms)))
    do
      local tenant, digits, span = tenant, digits, waited
      local job = (turns .. tenant .. ':' .. 'job' .. ':' .. digits)
      local started = tonumber(redis.call('HGET', job, 'started') or nil)
      if started and span > 0 then
        redis.call('HSET', job, 'started', (string.format('%.0f', (math.min(started + span, now_ms)))))
      end
    end
  end
  if redis.call('HGET', node, 'status') == 'queued' then
    redis.call('HSET', node, 'status', 'in_progress')
  end
end

local taken, note = {}, {}

local function hand_out(tenant, digits, since)
  local member, waited = tenant .. '/' .. digits, now_ms - since
  take_job(tenant, digits, waited)
  note[#note + 1] = member .. ' ' .. (string.format('%.0f', waited))
  taken[#taken + 1] = described(member, (string.format('%.0f', waited)))
end

local asked = most

local function reply(rescued)
  local first, running = '', redis.call('ZCARD', leases)
  for level = LEVELS - 1, 0, -1 do
    if redis.call('ZCARD', ((shard .. 'queued') .. ':' .. level .. (nil and ':' .. nil or ''))) > 0 then
      first = level
    end
  end
  local waiting = asked == 0 and table.concat(next_tenants(), ',') or ''
  return { 'ok', (string.format('%.0f', now_ms)), rescued, running, first, waiting, unpack(taken) }
end

local claimed = (shard .. ('claim:' .. token))
local before = redis.call('GET', claimed)
if before then
  for member, waited in string.gmatch(before, '(%S+) (%S+)') do
    local tenant, digits
    do
      local member = member
      local slash = string.find(member, '/', 1, true)
      tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
    end
    if (redis.call('HGET', (turns .. tenant .. ':' .. 'job' .. ':' .. digits), 'token') == token) then
      taken[#taken + 1] = described(member, waited)
    end
  end
  return reply(0)
end
local rescued, cancelled = rescue(lease_ms)
for _, member in ipairs(cancelled) do
  local tenant, digits
  do
    local member = member
    local slash = string.find(member, '/', 1, true)
    tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
  end
  if is_job(tenant, digits) then
    hand_out(tenant, digits, now_ms)
    most = most + 1
  end
end
for level = 0, most_level do
  while #taken < most do
    local tenant, digits, since = next_at(level)
    if not tenant then
      break
    end
    if is_job(tenant, digits) then
      hand_out(tenant, digits, since)
    end
  end
end
if #note > 0 then
  redis.call('SET', claimed, table.concat(note, ' '), 'PX', retry_ms)
end
return reply(rescued)
