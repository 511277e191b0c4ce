-- Shared by the scripts that make or remove conversations: the list that each tenant has of its own.
-- Invariant: a conversation that was not deleted is in conversations:TENANT of its shard, by the µs at which it began, and
-- nothing else is. One whose tree is forgotten or idle stays in it until it is taken away: so who reads it asks (idle.lua).

local CONVERSATION_MARK = '636f6e766572' -- store/keys.py

local function is_conversation(digits)
  return string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK
end

local function list_of(tenant)
  return shard_key('conversations:' .. tenant)
end

local function enlist(tenant, digits, created)
  count(tenant, 'bytes', LISTED_BYTES * redis.call('ZADD', list_of(tenant), created, digits))
end

local function unlist(tenant, digits)
  count(tenant, 'bytes', -LISTED_BYTES * redis.call('ZREM', list_of(tenant), digits))
end
