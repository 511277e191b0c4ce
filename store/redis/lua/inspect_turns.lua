--- include judging
-- What is wrong with each of some turns, and what each adds to the sums.
--
-- Arguments: members  the turns (judging.lua)
-- Result:    {'ok', for each turn that is there or has left something behind: its member, the parent's digits or -, the
--            number of children or -1, its kind or -, the bytes that are counted for it, 1 if a later release wrote
--            it, 1 if it is a root whose set of leaves has to be scanned, else 0, how many jobs of its tree it counts
--            or -1, the root of the tree in which it is a job itself or -, the bytes of its events, the digests of the
--            pictures that it shows or -, the field of the index of words that counts it or -, and a word for each
--            fault, with spaces between; of a picture its member, -, how many turns it says show it, or -1, pictures,
--            and its bytes}
-- Invariant: nothing changes.

local SMALL_TREE = 20

-- Whether the leaves of a tree are too many to be checked here, or one of them is in no tree or another.
local function is_mixed(turn)
  local set = key('tree', turn.tenant, turn.digits)
  if not turn.there.tree then
    return false
  elseif call('SCARD', set) > SMALL_TREE then
    return true
  end
  for _, digits in ipairs(call('SMEMBERS', set)) do
    if root_of(turn.tenant, digits) ~= turn.digits then
      return true
    end
  end
  return false
end

local reply = { 'ok' }

local function add_picture(tenant, digest)
  local turns_shown, length = picture_in(tenant, digest)
  local bytes = length > 0 and picture_bytes(tenant, length) or 0
  if call('EXISTS', key('picture', tenant, digest)) == 1 then
    reply[#reply + 1] = string.format('%s/%s - %d pictures %d 0 0 0 - 0 - -', tenant, digest, turns_shown, bytes)
  end
end

local function add_turn(tenant, digits, listed)
  local turn, words = judge(tenant, digits, listed, version)
  local found = turn.fields
  local bytes = (turn.places or 0) * LEAF_BYTES + (turn.listed_score and LISTED_BYTES or 0)
    + (turn.own_tree_score and TREE_BYTES or 0)
  if found then
    local shown, number = pictures_of(turn)
    bytes = bytes + number * SHOWN_BYTES
    local parent = found.parent and found.parent ~= '' and found.parent or '-'
    local jobs, tree, events = job_sums(turn)
    table.insert(words, 1, string.format('%s %s %s %s %s %d %d %s %s %s %s %s', turn.member, parent,
      exact(found.children or -1), found.deleted and 'tombstones' or 'responses', exact(bytes + (found.held or 0)),
      turn.newer and 1 or 0, is_mixed(turn) and 1 or 0, exact(jobs), tree, exact(events),
      number > 0 and shown or '-', counted_as(turn)))
  elseif #words > 0 then
    table.insert(words, 1, string.format('%s - -1 - %d 0 0 0 - 0 - -', turn.member, bytes))
  end
  if #words > 0 then
    reply[#reply + 1] = table.concat(words, ' ')
  end
end

for tenant, digits, listed in each_member(members) do
  if #digits > DIGITS then
    add_picture(tenant, digits)
  else
    add_turn(tenant, digits, listed)
  end
end
return reply
