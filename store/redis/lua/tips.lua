--- include idle
--- include tree_jobs
-- The tree of a turn or of a conversation, and the turns at its ends: those without children and those under way.
--
-- Arguments: cursor  0, or what the call before gave
--            most    about how many turns without children one call gives
-- Result:    {'ok', digits of the root, its last use, the next cursor or 0 after the last call, DIGITS=USED of turns, with
--            spaces between} | {'missing'}
-- Invariant: nothing changes, not even the order of use. A deleted turn is missing, but the root, by which its tree is
--            called; as is a turn of another tenant, which costs the same.

local root, deleted = unpack(call('HMGET', node, 'root', 'deleted'))
if not root or (deleted and root ~= digits) or gone(tenant, root, idle_us) then
  return { 'missing' }
end
local tips, nodes = {}, key('node', tenant, '')
local function add(tip)
  local touched = call('HGET', nodes .. tip, 'touched')
  if touched then
    tips[#tips + 1] = tip .. '=' .. touched
  end
end
if cursor == '0' then
  for _, tip in ipairs(under_way_in(tenant, root)) do
    add(tip)
  end
end
local page = call('SSCAN', key('tree', tenant, root), cursor, 'COUNT', most)
for _, tip in ipairs(page[2]) do
  add(tip)
end
local used = call('ZSCORE', trees, tenant .. '/' .. root)
return { 'ok', root, used, page[1], table.concat(tips, ' ') }
