--- include accepting
--- include adding
--- include eviction
--- include log_room
--- include standing
-- Accept a background response: its turn, queued below its parent, its job, a place in the queue, and the first entry
-- of its log.
--
-- Arguments: conversation  the digits of the conversation that stands at the parent, or ''
--            level         the level of its priority
--            group         the name of the jobs that it belongs to, or ''; they wait where the first of them did
--            hurries       1 if it waits before all others of its tenant at its level that don't hurry, else 0
--            mode          plain, or stream where its events may be followed
--            fleeting      1 if it goes with its log, else 0
--            steerable     1 if something may be said to it while it is under way, else 0
-- Result:    {'ok'} | {'queue'} when too many wait, {'crowded'} when their logs have too many bytes, each with how many
--            may, and 1, or a larger number where only so large a part of them all is for those that have hours: more than
--            that may only a tenant who has little there | {'conflict'} | {'missing'} | {'status', the parent's status} |
--            {'long'} | {'large'} | {'again'} | {'full'}, as in append.lua; the last two of event logs, too | {'late', the
--            ms on this clock} | {'gone'} when the conversation isn't there any more | {'moved'} when it stands elsewhere, or
--            another run holds it
-- Invariant: accepted completely and once, or not at all; a retry is 'ok', even if the response has ended since. What its
--            caller has given up, and will ask for again, is not accepted. Until it ends it is no leaf, so neither it nor
--            anything above it is evicted.
--            From now on until its end it holds its conversation, unless it is fleeting: that one is never added to it.
--
-- A job's fields: token of who holds its lease, '' while it waits; lease_ms, how long the last lease is; leased, the ms to
-- which a holder's writes have held it (journal.lua); level at which it waits, '' while it
-- doesn't; own, the level of its priority (promoted in claim.lua); epoch, how often it changed hands; tries, how many holders in a row got no
-- further, of those that were heard of; heard, whether this one was (hearing.lua); progressed, whether he got further;
-- sequence, by which it stands in line; submitted (ms); started, the ms at which it would have begun had it never waited
-- since; last, the number of the last event in its log, and accepted, what that was when nobody had begun;
-- log_bytes, and snapshot_bytes, which are part of them; waiting_bytes, those of a
-- job that waits and was not begun; steerable where it is so; steers, the ids of all that was said to it meanwhile, in order and
-- with spaces between, steer_bytes, the bytes of that, and said:ID for each of them. It goes when the response ends. Its node has
-- `background` (the mode) and `submission` (the digest) for good, which is its `digest` too until the end; `fleeting` where it is
-- so; and from the end on `steers`, if there were any, and `log_bytes`, where it has a log; until then `joins` with the digits of the conversation that it is added
-- to, which has it in `awaits` (standing.lua). A tree's root has `jobs`, their number in the tree, where there are any.

local MOST_GROUPS = 1000 -- the most groups of a tenant that are known
local HURRY = 2 ^ 52 -- by how much less than its score the place of one that hurries is: no clock comes so far
local GROUPS_MS = 8 * 3600000 -- for how long they are, since the last job of one was accepted

-- The place in line of a job of a group: where its first one was accepted, behind all that came since.
local function place_in_group(tenant, group, score)
  local groups = shard_key('groups:' .. tenant)
  if call('ZSCORE', groups, group) then
    score = exact(tonumber(call('ZINCRBY', groups, 1, group)))
  else
    call('ZADD', groups, score, group)
    call('ZREMRANGEBYRANK', groups, 0, -MOST_GROUPS - 1)
  end
  call('PEXPIRE', groups, GROUPS_MS)
  return score
end

local function place_in_line(tenant, score)
  if hurries == '1' then
    return exact(score - HURRY)
  end
  return group == '' and score or place_in_group(tenant, group, score)
end

local stored_digest, before, root = unpack(call('HMGET', node, 'digest', 'submission', 'root'))
local reply = not_to_add(stored_digest and (before or ''), root)
if reply then
  return reply
end
local log_bytes = #entry + ENTRY_BYTES
local refused = no_place(tenant, level, log_bytes, max_queued, max_waiting)
if refused then
  return refused
end
local joins = conversation ~= '' and fleeting ~= '1'
local why = joins and barred(tenant, conversation, parent, pin)
if why then
  return { why }
elseif conversation ~= '' then
  keep_for_room(tenant, conversation, parent, pin)
end
local from, refusal = inherited(tenant, digits, parent, pin)
if not from then
  return refusal
end
local verdict = make_room(from.root)
if verdict == 'ok' then
  verdict = take_log_room(log_bytes, max_logged, budget)
end
if verdict ~= 'ok' then
  return reply_with_evicted(verdict)
end

local score = next_score(clock)
add_node(tenant, parent, from, score, JOB_BYTES + #spec_blob)
release(tenant, parent, from.root)
if fleeting == '1' then
  call('HSET', node, 'fleeting', 1)
end
add_job(tenant, digits, from.root, mode, level, place_in_line(tenant, score), log_bytes)
if steerable == '1' then
  call('HSET', job, 'steerable', 1)
end
if conversation ~= '' then
  call('ZREM', key('pins', tenant, conversation), pin)
end
if joins then
  call('HSET', node, 'joins', conversation)
  call('HSET', key('node', tenant, conversation), 'awaits', digits)
end
return reply_with_evicted('ok')
