-- All trees from before the archive are noted up to a later use.
--
-- Arguments: before  up to which use they were
--            after   up to which use they are, or '' where these are all
-- Result:    {'ok'} | {'other'} when somebody else has passed them meanwhile
-- Invariant: none is passed that nobody has noted.

if call('GET', older) ~= before then
  return { 'other' }
elseif after == '' then
  call('DEL', older)
else
  call('SET', older, after)
end
return { 'ok' }
