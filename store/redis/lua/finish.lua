--- include ending
--- include outbox
--- include queueing
-- A background response has ended: store its turn, and the last entry of its log.
--
-- Arguments: last   the number of the entry's last event
--            entry  the bytes of the log's last entry
-- Result:    {'ok', how many webhooks were dropped for this one, '' or why it isn't added to the conversation that it was to
--            be added to: 'gone' when that isn't there any more, 'moved' when it stands elsewhere} | {'lost'} when somebody else holds the lease |
--            {'illegal', the response's status} when it can't move from that to the given one | {'written', the number of the
--            last event in the log} when that is no earlier one | {'behind', the same number} when it is earlier than the
--            one before | {'steered'} when something else was said to it
-- Invariant: who has lost the lease changes nothing; a retry is 'ok'. The place was taken when the job was accepted, so
--            it is never too large and never too much. Nobody sees the last event before the turn is stored.

local turn = ending_of(tenant, digits)
if not holds_lease(tenant, digits, token) then
  return { turn.mode and turn.digest == digest and 'ok' or 'lost', 0, '' }
end
local refusal = not_to_end(turn, status, after, last, steers)
if refusal then
  return refusal
end
local why = end_job(turn, { status = status, continuable = continuable, digest = digest, added = added, said = said,
  last = last, entry = entry, messages = messages_blob, response = response_blob, pictures = pictures, spent = spent })
local dropped = announced == '1' and announce(tenant, digits, status, max_pending) or 0
record()
return { 'ok', dropped, why }
