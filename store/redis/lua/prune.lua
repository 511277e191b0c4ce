--- include removal
-- Take away the tombstones of a path that nothing needs: a turn, then each above it that loses its last child.
--
-- Arguments: path  digits of turns, each the parent of the one before, in one string
-- Result:    {'gone'} when none of them is left | {'needed'} when one is, so that all above it are needed too
-- Invariant: takes only what is deleted and has neither a child nor a live pin, and passes over what is gone,
--            so a retry after a lost reply changes nothing.

for at = 1, #path, #digits do
  local digits = string.sub(path, at, at + #digits - 1)
  local deleted, children = unpack(call('HMGET', key('node', tenant, digits), 'deleted', 'children'))
  if children then
    if not deleted or children ~= '0' or held_for_a_run('pins', tenant, digits) then
      record()
      return { 'needed' }
    end
    remove(tenant, digits)
  end
end
record()
return { 'gone' }
