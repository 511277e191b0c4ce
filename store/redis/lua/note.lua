-- Some turns of a tree, by its root, are to be archived again: the archive lacks what it should have.
--
-- Keys:      clock
-- Arguments: some  the digits of each, with spaces between
-- Result:    {'ok', how many were noted}
-- Invariant: only what is there is noted, and nothing where the shard has no archive. A retry changes nothing but scores.

local noted = 0
if redis.call('EXISTS', shard_key('archive')) == 1 then
  for each in string.gmatch(some, '%x+') do
    if redis.call('EXISTS', key('node', tenant, each)) == 1 then
      note_unarchived(tenant, digits, '+' .. each, next_score(clock))
      noted = noted + 1
    end
  end
end
return { 'ok', noted }
