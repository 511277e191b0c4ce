--- include noting
-- Have trees with changes wait to be archived again, where the order of those that do was lost.
--
-- Arguments: members  TENANT/ROOT of trees that may have changes, with spaces between
-- Result:    {'ok'}
-- Invariant: a tree that waits already keeps its place, and one without changes gets none.

for member in string.gmatch(members, '%S+') do
  local tenant, root = split(member)
  if call('EXISTS', changes_of(tenant, root)) == 1 then
    queue(tenant, root)
  end
end
return { 'ok' }
