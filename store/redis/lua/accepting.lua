--- include logs
--- include queueing
-- Shared by the scripts that accept a background response: a place for it, and its job.
-- Arguments: last         the number of the last event in the first entry
--            max_queued   the most jobs that wait in the shard
--            max_waiting  the most bytes of the logs of all jobs that wait and have not begun
--            spec_blob    what to store under spec
--            entry        the bytes of the log's first entry
-- Invariant: a job is accepted with all of its places, or not at all.

-- How many jobs wait at a level and behind it, of all tenants or of one.
local function waiting(first, tenant)
  local sum = 0
  for level = first, LEVELS - 1 do
    sum = sum + call('ZCARD', level_key(tenant and 'line' or 'queued', level, tenant))
  end
  return sum
end

-- The reply for a job of a level, whose log has so many bytes, that gets no place in the queue; nil where it gets one. A
-- tenant may have all places while nobody else comes, and a part beyond them is kept for tenants that have little. Jobs that
-- have hours may have a part of all places, so that they leave the others to those that wait for seconds.
local function no_place(tenant, level, log_bytes, max_queued, max_waiting)
  local KEPT_PART, LITTLE_PART, HOURS_PART = 8, 16, 2
  local sums = call('HMGET', shard_key('waiting-bytes'), tenant, ALL_TENANTS, WITH_HOURS)
  local own_bytes, all_bytes, with_hours = tonumber(sums[1] or 0), tonumber(sums[2] or 0), tonumber(sums[3] or 0)
  if own_bytes > 0 and waiting(0, tenant) == 0 then -- it counts anew
    note_waiting(0 - own_bytes, tenant, ALL_TENANTS)
    own_bytes, all_bytes = 0, all_bytes - own_bytes
  end

  -- The most that all may have together, of a limit, when one gets more that then has so much itself.
  local function most_for(limit, own)
    local little = own <= math.max(1, math.floor(limit / LITTLE_PART))
    return little and limit + math.max(1, math.floor(limit / KEPT_PART)) or limit
  end

  -- The same, of the jobs from a level on, which may have such a part of all places.
  local function refusal(first, bytes, part)
    local jobs, places, room = waiting(first), math.floor(max_queued / part), math.floor(max_waiting / part)
    if jobs >= most_for(places, waiting(first, tenant) + 1) then
      return { 'queue', places, part }
    elseif bytes > 0 and bytes + log_bytes > most_for(room, own_bytes + log_bytes) then
      return { 'crowded', room, part }
    end
  end

  local reply = refusal(0, all_bytes, 1)
  if not reply and tonumber(level) >= WINDOWED then
    if with_hours > 0 and waiting(WINDOWED) == 0 then -- they count anew
      note_waiting(0 - with_hours, WITH_HOURS)
      with_hours = 0
    end
    reply = refusal(WINDOWED, with_hours, HOURS_PART)
  end
  return reply
end

-- Write the job of a turn that was just added to the tree `root`, with the first entry of its log, which has its room, and
-- have it wait at the level of its priority, where `sequence` says which of its tenant's are before it.
local function add_job(tenant, digits, root, mode, own, sequence, log_bytes)
  local node, job = key('node', tenant, digits), key('job', tenant, digits)
  call('HSET', node, 'background', mode, 'submission', digest)
  call('SET', key('spec', tenant, digits), spec_blob)
  call('HSET', job, 'own', own, 'epoch', 0, 'tries', 0, 'progressed', 0, 'sequence', sequence, 'submitted', now_ms,
    'last', last, 'accepted', last, 'log_bytes', log_bytes, 'waiting_bytes', log_bytes)
  add_entry(tenant, digits, last, entry)
  note_waiting(log_bytes, tenant, ALL_TENANTS)
  call('HINCRBY', key('node', tenant, root), 'jobs', 1)
  enqueue(own, tenant, digits, sequence)
end
