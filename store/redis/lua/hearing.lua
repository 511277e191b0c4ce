-- Shared by the scripts by which the holder of a lease is heard of.
-- Invariant: what a claim handed out counts as a try from the moment at which its holder is first heard of, and once. A claim
-- whose reply nobody got costs a job no try. `heard` is no, yes, or spared for a lease that was held on for a holder who
-- could not renew it (queueing.lua).

-- How many holders in a row got no further, with one more.
local function next_try(tries, progressed)
  return progressed == '1' and 1 or tries + 1
end

local function hear(job, heard)
  if heard == 'no' then
    local tries, progressed = unpack(call('HMGET', job, 'tries', 'progressed'))
    call('HSET', job, 'tries', next_try(tries, progressed), 'progressed', 0)
  end
  if heard and heard ~= 'yes' then
    call('HSET', job, 'heard', 'yes')
  end
end
