--- include idle
--- include orders
-- Some of a tenant's conversations in a shard, in the order in which they began, or of its trees, in that of their last use.
--
-- Arguments: of         conversations or trees
--            tenant     whose they are
--            score      where they go on: the µs of the one before them, as text, since it has sixteen digits
--            after      the digits of that one, which need not be there any more; '' to begin with the first
--            ascending  1 for the oldest first, else 0
--            most       how many at most
-- Result:    {'ok', DIGITS=SCORE of each, with a ? behind it where it is unknown, and spaces between, 1 if there are more
--            behind them, else 0}
-- Invariant: nothing changes. A call looks at no more than it returns, wherever it begins.

local of_trees = of == 'trees'
local list = of_trees and trees_of(tenant) or list_of(tenant)

-- How many of the list stand before the place `after`, and with `itself` in it. Those of the same µs stand by their digits.
local function before(itself)
  local low, high = call('ZCOUNT', list, '-inf', '(' .. score), call('ZCOUNT', list, '-inf', score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call('ZRANGE', list, middle, middle)[1]
    if found < after or (itself and found == after) then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- A tree is also known where its root was deleted, as long as something continues that.
local function is_known(digits)
  local root, deleted = unpack(call('HMGET', key('node', tenant, digits), 'root', 'deleted'))
  return root and (of_trees or not deleted) and not gone(tenant, root, idle_us)
end

local total, first, last = call('ZCARD', list), nil, nil
if ascending == 1 then
  first = after == '' and 0 or before(true)
  last = math.min(first + most, total) - 1
else
  last = (after == '' and total or before(false)) - 1
  first = math.max(last - most + 1, 0)
end
local page, some = {}, first <= last and call('ZRANGE', list, first, last, 'WITHSCORES') or {}
for at = 1, #some, 2 do
  local place = ascending == 1 and (at + 1) / 2 or (#some - at + 1) / 2
  page[place] = some[at] .. '=' .. some[at + 1] .. (is_known(some[at]) and '' or '?')
end
local more = ascending == 1 and last + 1 < total or ascending == 0 and first > 0
return { 'ok', table.concat(page, ' '), more and 1 or 0 }
