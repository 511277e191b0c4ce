--- include orders
--- include usage
-- Shared by the scripts that make or remove conversations: the list that each tenant has of its own.
-- Invariant: a conversation that was not deleted is in conversations:TENANT of its shard, by the µs at which it began, and
-- nothing else is. One whose tree is forgotten or idle stays in it until it is taken away: so who reads it asks (idle.lua).

local function enlist(tenant, digits, created)
  count(tenant, 'bytes', LISTED_BYTES * redis.call('ZADD', list_of(tenant), created, digits))
end

local function unlist(tenant, digits)
  count(tenant, 'bytes', -LISTED_BYTES * redis.call('ZREM', list_of(tenant), digits))
end
