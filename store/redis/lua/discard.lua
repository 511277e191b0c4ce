--- include judging
--- include repairing
--- include unarchived
-- Take out of memory a turn that lacks something of itself, and all below it. It is no deletion: nothing is noted of it, so
-- what an archive has of them it keeps, and they come back from there whole.
--
-- Arguments: top      TENANT/DIGITS of the faulty turn
--            members  TENANT/DIGITS of turns below it, children before their parents, and at the end of all calls
--                     the turn itself, with spaces between
--            circle   1 where the turn is below itself, so that its lineage can't be derived; else 0
--            archive  'there' where the archive has what the turn lacks, 'lacks' where it was asked and hasn't, or 'unknown'
-- Result:    {'ok'} | {'sound'} when the faulty turn is gone, or no longer faulty | {'waits'} when some of them stay for now |
--            {'alone'} when nobody has what it lacks, and what is left of it can be read
-- Invariant: the fault is found again before anything goes. What the archive still lacks and can get stays until it has that,
--            and so does what a run holds, and what doesn't name the tree where that would be noted. What no archive has goes where it can't be read as it is. Where the parent is there,
--            it has one child less; repair.lua makes it a leaf when that was its last.

local UNREADABLE = { damaged = true, ['no-messages'] = true, lineage = circle == '1' }

-- Whether it isn't known of a turn what the archive lacks of it: its node doesn't say in which tree it is, or its parent says
-- another one, or nobody has noted yet what the tree had before there was an archive.
local function is_unknown(turn)
  local found = turn.fields
  local above = found.parent == '' and turn.digits or (found.parent and root_of(turn.tenant, found.parent))
  return not found.root or (above and above ~= found.root) or is_older(turn.tenant, found.root)
end

-- Whether a turn stays for now: it has a child, a run or a job needs it, or the archive is to have it first.
local function has_to_stay(turn)
  local found, pins = turn.fields, key('pins', turn.tenant, turn.digits)
  if (found.children or 0) > 0 or found.fleeting or is_under_way(turn) or (is('zset', pins) and pinned(pins))
    or is_unknown(turn) then
    return true
  end
  local lacks = call('ZSCORE', changes_of(turn.tenant, found.root), '+' .. turn.digits)
  if lacks then
    archive_next(turn.tenant, found.root, found.touched or 0)
  end
  return lacks
end

local function forget_to_archive(turn)
  if turn.fields.root then
    call('ZREM', changes_of(turn.tenant, turn.fields.root), '+' .. turn.digits)
  end
end

-- Whether the archive still has what was erased of a turn: it must not come back from there.
local function is_to_be_erased(turn)
  return call('HEXISTS', turn.node, 'redactions') == 1
    and call('ZSCORE', changes_of(turn.tenant, turn.fields.root), '+' .. turn.digits)
end

local function discard(turn)
  local tenant, digits, found = turn.tenant, turn.digits, turn.fields
  local above = key('node', tenant, found.parent or '')
  displace_job(turn)
  drop_log(tenant, digits, integer(turn.there.job and call('HGET', turn.job, 'log_bytes') or found.log_bytes) or 0)
  clear(turn)
  forget_to_archive(turn)
  count(tenant, found.deleted and 'tombstones' or 'responses', -1)
  count(tenant, 'trees', found.parent == '' and -1 or 0)
  count(tenant, 'bytes', -(found.held or 0))
  if is('hash', above) and (integer(call('HGET', above, 'children')) or 0) > 0 then
    call('HINCRBY', above, 'children', -1)
  end
end

-- The fate of the faulty turn and of those below it: the word of the reply, or nil where they go.
local function fate()
  local tenant, digits = split(top)
  local turn, words = judge(tenant, digits, '', version)
  local known, lacks, unreadable = archive == 'there', false, false
  for _, word in ipairs(words) do
    unreadable = unreadable or UNREADABLE[word] or word == 'no-parent'
    lacks = lacks or UNREADABLE[word] or LACKING[word]
  end
  if not (unreadable or lacks) then
    return 'sound'
  elseif known and not archive_after() or archive == 'unknown' and archive_after()
    or known and (is_unknown(turn) or (lacks and is_to_be_erased(turn))) then
    return 'waits' -- for who can say more
  elseif known and lacks then
    forget_to_archive(turn) -- as it is it can't be archived, nor could what continues it
  elseif not known and not unreadable then
    local found = turn.fields
    return (turn.answered or turn.under_way or (found.children or 0) > 0) and 'alone' or nil
  end
end

local word = fate()
if word then
  return { word }
end
word = 'ok'
for tenant, digits in each_member(members) do
  local turn = facts_of(tenant, digits)
  if turn.there.node then
    turn.fields = fields_of(turn.node)
    if not has_places(turn) or (archive == 'there' and has_to_stay(turn)) then
      word = 'waits'
    else
      discard(turn)
    end
  end
end
record()
return { word }
