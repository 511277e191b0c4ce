--- include removal
-- Let a conversation go from memory, as the archive has a later form of it. Its turns stay, and so does what the archive has.
--
-- Arguments: used  when it was used last, in µs, as it was found to be the earlier form
-- Result:    {'ok'} | {'changed'} when it was used since, or is gone
-- Invariant: whoever holds it can't add to it any more.

local root, touched = unpack(call('HMGET', node, 'root', 'touched'))
if touched ~= used then
  return { 'changed' }
end
call('ZREM', changes_of(tenant, root), '+' .. digits)
remove(tenant, digits)
record()
return { 'ok' }
