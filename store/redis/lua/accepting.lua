--- include logs
--- include queueing
-- Shared by the scripts that accept a background response: a place for it, and its job.
-- Arguments: last         the number of the last event in the first entry
--            max_queued   the most jobs that wait in the shard
--            max_waiting  the most bytes of the logs of all jobs that wait and have not begun
--            spec_blob    what to store under spec
--            entry        the bytes of the log's first entry
-- Invariant: a job is accepted with all of its places, or not at all.

-- The word for why a job whose log has so many bytes gets no place in the queue, or nil.
local function no_place(tenant, log_bytes, max_queued, max_waiting)
  if waiting() >= most_for(max_queued, waiting_of(tenant) + 1) then
    return 'queue'
  end
  local own_bytes, all_bytes = waiting_bytes(tenant)
  if all_bytes > 0 and all_bytes + log_bytes > most_for(max_waiting, own_bytes + log_bytes) then
    return 'crowded'
  end
end

-- Write the job of a turn that was just added to the tree `root`, with the first entry of its log, which has its room, and
-- have it wait at the level of its priority, where `sequence` says which of its tenant's are before it.
local function add_job(tenant, digits, root, mode, own, sequence, log_bytes)
  local node, job = key('node', tenant, digits), key('job', tenant, digits)
  redis.call('HSET', node, 'background', mode, 'submission', digest)
  redis.call('SET', key('spec', tenant, digits), spec_blob)
  redis.call('HSET', job, 'own', own, 'epoch', 0, 'tries', 0, 'progressed', 0, 'sequence', sequence, 'submitted', now_ms,
    'last', last, 'accepted', last, 'log_bytes', log_bytes, 'waiting_bytes', log_bytes)
  add_entry(tenant, digits, last, entry)
  note_waiting(tenant, log_bytes)
  redis.call('HINCRBY', key('node', tenant, root), 'jobs', 1)
  enqueue(own, tenant, digits, sequence)
end
