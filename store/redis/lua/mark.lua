--- include clock
-- Mark the moment up to which others ask whether all that was written is safe, and say which of some turns are missing.
--
-- Arguments: there  TENANT/DIGITS=DIGEST of turns that should be there with that content, or as queued with it; `ended`
--                   in place of the digest for one that should only not be under way; with spaces between
-- Result:    {'ok', those of them that are not so}
-- Invariant: no turn changes. What is there now was written before the mark, so it is wherever the mark is.

local reply = { 'ok' }
for member, digest in string.gmatch(there, '(%S+)=(%S+)') do
  local own, at = split(member)
  local stored, submitted = unpack(call('HMGET', key('node', own, at), 'digest', 'submission'))
  local found = stored == digest or submitted == digest
  if digest == 'ended' then
    found = not stored or stored ~= submitted
  end
  if not found then
    reply[#reply + 1] = member
  end
end
next_score(clock)
return reply
