--- include limits
-- Pieces of work that were let begin are over: their limits get what they took, in the place of what was reserved.
--
-- Keys:      reservations
-- Arguments: tenant  whose work it was
--            over    of each DIGITS, READS, WRITES and TOKEN: its id's, the tokens that it read and wrote, and who has
--                    reserved for it, '' for whoever that is; JSON. READS is -1 where nobody knows what it took, and all
--                    that was reserved counts; -2 where it never began, and nothing does
-- Result:    {'ok', for how many of them something was reserved, and still was}
-- Invariant: each is settled once, and by another TOKEN not at all. What was counted in a month is settled in that.
--
-- `mean` is about how many tokens the tenant's work writes: of each piece it takes a tenth.

local found = settle_work(cjson.decode(over))
return { 'ok', exact(found) }
