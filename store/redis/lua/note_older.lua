--- include unarchived
-- Note turns of a tree from before the archive, as far as they have ended and nobody has noted them.
--
-- Arguments: tree     TENANT/ROOT
--            members  the digits of turns of it, with spaces between
-- Result:    {'ok', the last use of the tree, or 0 where it is gone}
-- Invariant: a retry changes nothing. One under way is noted when it ends.

local tenant, root = split(tree)
local used = call('ZSCORE', trees, tree) or '0'
for digits in string.gmatch(used ~= '0' and members or '', '%x+') do
  local found, fleeting = unpack(call('HMGET', key('node', tenant, digits), 'root', 'fleeting'))
  if found == root and not fleeting and call('EXISTS', key('job', tenant, digits)) == 0
    and not call('ZSCORE', changes_of(tenant, root), '+' .. digits) then
    note_unarchived(tenant, root, '+' .. digits, next_score(clock))
  end
end
return { 'ok', used }
