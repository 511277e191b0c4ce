--- include idle
--- include said
-- The turn of a tenant that ends with the first of some words that any ends with.
--
-- Arguments: tenant   whose turns they are
--            digests  the digests of the words (store/turn.py), the longest words first, in one string
--            forks    1 if a turn that another one continues, or is about to continue, may be found, else 0
-- Result:    {'ok', the place of the digest, from 0 on, the turn's digits} | {'missing'}
-- Invariant: nothing changes, not even the order of use. A turn that may not be continued is not found, and neither is one of
--            several with the same words; a name in the index decides nothing, the whole digest in the node does.

local function digest_at(at)
  return string.sub(digests, (at - 1) * WORDS_LENGTH + 1, at * WORDS_LENGTH)
end

-- Whether a turn is continued, or may be by a run that has it pinned, or by a job.
local function has_next(found, root, children, continued)
  return continued or call('EXISTS', key('pins', tenant, found)) == 1 or (children ~= '0' and has_jobs(tenant, root))
end

local index, names = entry_of(tenant, ''), {}
for at = 1, #digests / WORDS_LENGTH do
  names[at] = select(2, entry_of(tenant, digest_at(at)))
end
for at, found in ipairs(call('HMGET', index, unpack(names))) do
  local said, root, continuable, deleted, erased, continued, children
  if found then
    said, root, continuable, deleted, erased, continued, children = unpack(call('HMGET', key('node', tenant, found),
      'said', 'root', 'continuable', 'deleted', 'erased', 'continued', 'children'))
  end
  if said and said == digest_at(at) and continuable == '1' and not deleted and not erased
    and (forks == '1' or not has_next(found, root, children, continued)) and not gone(tenant, root, idle_us) then
    return { 'ok', at - 1, found }
  end
end
return { 'missing' }
