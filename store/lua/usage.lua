-- Shared by the scripts that add or take away turns: the counters of a shard and of each tenant in it.
-- Invariant: a counter equals what is stored; a tenant with nothing stored has no fields.

local function count(usage, tenant, changes)
  for field, change in pairs(changes) do
    if change ~= 0 then
      redis.call('HINCRBY', usage, field, change)
      local own = field .. '/' .. tenant
      if redis.call('HINCRBY', usage, own, change) == 0 then
        redis.call('HDEL', usage, own)
      end
    end
  end
end
