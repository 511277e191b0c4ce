-- Shared by the scripts that look into a tenant's orders: its leaves, its trees and its conversations.

local CONVERSATION_MARK = '636f6e766572' -- store/keys.py

local function leaves_of(tenant)
  return leaves .. ':' .. tenant
end

local function trees_of(tenant)
  return trees .. ':' .. tenant
end

local function list_of(tenant)
  return shard_key('conversations:' .. tenant)
end

local function is_conversation(digits)
  return string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK
end
