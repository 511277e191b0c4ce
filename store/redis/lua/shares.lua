--- include orders
-- Shared by the scripts that make room: which tenant gives it.
-- Invariant: a tenant's share of a cap is the cap, divided by the tenants that have something of it. Room is given by the
-- tenant that has most, if that is more than its share, with what is to be stored counted to the one that needs the room. One
-- whose turns all have to stay is passed over for the next. Where nobody is left who has more than a share, or many were passed
-- over, it is the one itself that needs the room; so nobody with no more than a share gives anything to another one.
--
-- To define a function costs more than to call it, so what is seldom needed is defined within what needs it.

local ALL = -1 -- instead of a rank: all that this tenant has was checked and has to stay

-- Of a counter that would pass its limit by what the turn adds: a function that says which tenant gives room, or nil where
-- all that may have to stay, given the ranks or ALL of those looked at before; and one that says whether a tenant has more
-- than its share.
local function sharing(field, limit, adds)
  local TIED = 5 -- the most tenants with the same number whose leaves are compared
  local PASSED = 100 -- the most tenants that are passed over for one turn
  local counted = usage .. ':' .. field
  local own, tenants = tonumber(redis.call('ZSCORE', counted, tenant) or nil), redis.call('ZCARD', counted)
  local share = limit / (own and tenants or tenants + 1)
  own = (own or 0) + adds

  -- Of some tenants with the same number the one whose first leaf was used least recently. Of many, others for each turn.
  local function least_recent(names, number, stays)
    local tied = #names >= TIED and redis.call('ZCOUNT', counted, number, number) or 0
    if tied > #names then
      local from = tonumber(string.sub(digits, -6), 16) % (tied - TIED + 1)
      names = redis.call('ZRANGE', counted, number, number, 'BYSCORE', 'LIMIT', from, TIED)
    end
    local found, least
    for _, name in ipairs(names) do
      local used = tonumber(redis.call('ZRANGE', leaves_of(name), 0, 0, 'WITHSCORES')[2] or nil)
      if stays[name] ~= ALL and name ~= tenant and (not found or (used and used < least)) then
        found, least = name, used or math.huge
      end
    end
    return found
  end

  local function giver(stays)
    local passed = 0
    for _, rank in pairs(stays) do
      passed = passed + (rank == ALL and 1 or 0)
    end
    local itself = stays[tenant] ~= ALL and tenant or nil
    if passed > PASSED then
      return itself
    end
    local most, names = itself and own or -math.huge, {}
    local page = redis.call('ZRANGE', counted, 0, passed + TIED, 'REV', 'WITHSCORES')
    for at = 1, #page, 2 do
      local name, number = page[at], tonumber(page[at + 1])
      if name ~= tenant and stays[name] ~= ALL and number > share
        and (number > most or (names[1] and number == most)) then
        most, names[#names + 1] = number, name
      end
    end
    return names[2] and least_recent(names, most, stays) or names[1] or itself
  end

  local known = { [tenant] = own > share }
  local function is_over(name)
    if known[name] == nil then
      known[name] = (tonumber(redis.call('ZSCORE', counted, name) or nil) or 0) > share
    end
    return known[name]
  end

  return giver, is_over
end
