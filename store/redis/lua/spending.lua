--- include clock
-- Shared by the scripts by which a response ends: what it has spent is counted in the same call.
-- Invariant: counted once, with what else a retry doesn't do again. An hour has at most MOST_SPENDERS fields: what would be
-- one more is counted under '//', so that nothing is lost of the sum.
--
-- The hash of an hour, by the server's clock, has for each TENANT/KEY/MODEL the text 'REQUESTS INPUT CACHED OUTPUT REASONING'.

-- Count what is '' for nothing, or 'SECONDS INPUT CACHED OUTPUT REASONING KEY/MODEL'; the hour is known for so many seconds.
local function spend(tenant, spent)
  local MOST_SPENDERS, HOUR_US = 1000, 3600000000
  if spent ~= '' then
    local seconds, put_in, cached, put_out, reasoning, whose = string.match(spent, '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
    local hour, field = shard_key('spent:' .. math.floor(now_us / HOUR_US)), tenant .. '/' .. whose
    local known = call('HGET', hour, field)
    local fields = known and 1 or call('HLEN', hour)
    if not known and fields >= MOST_SPENDERS then
      field = '//'
      known = call('HGET', hour, field)
    end
    local sums = { 1, put_in, cached, put_out, reasoning }
    for at, had in ipairs({ string.match(known or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)') }) do
      sums[at] = sums[at] + had
    end
    call('HSET', hour, field, string.format('%d %d %d %d %d', unpack(sums)))
    if fields == 0 then
      call('PEXPIRE', hour, seconds * 1000)
    end
  end
end
