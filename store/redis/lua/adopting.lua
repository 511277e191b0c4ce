-- Shared by the scripts that bring a store of an older release up to date (former.lua), some of it a call.
-- Invariant: what is counted stays the same. While there are leaves in `leaves`, those of tenants with more than their share
-- go first, as an older release would take them.

local function adopting()
  local QUIET_US = 600 * 1000000 -- so long nobody of an older release has to have written
  local ADOPTED = 200 -- the most leaves that one call moves, which takes about a millisecond
  local PAGES, PAGE = 4, 100 -- of the other fields one call moves at most about so many
  local INDEXED = 500 -- the most trees that one call compares with those of their tenants: half a millisecond
  local FORGOTTEN = '(0' -- behind the trees that were forgotten, which go with a sweep
  local FORMER = '/' -- in `stays` (eviction.lua); no tenant is called so

  local function adopt_counter(field, tenant, noted)
    local change = tonumber(noted) or 0
    redis.call('HDEL', usage, field .. '/' .. tenant)
    if change ~= 0 then
      note_own(tenant, field, change)
    end
    if change ~= 0 and field == 'trees' then
      note_own(tenant, 'bytes', change * TREE_BYTES)
    end
  end

  -- Move the counters of a tenant.
  local function counters_of(tenant)
    for _, field in ipairs({ 'responses', 'tombstones', 'trees', 'bytes' }) do
      local noted = redis.call('HGET', usage, field .. '/' .. tenant)
      if noted then
        adopt_counter(field, tenant, noted)
      end
    end
  end

  -- How many fields of `usage` are of tenants, or of nobody that is known here.
  local function other_fields()
    return redis.call('HLEN', usage)
      - redis.call('HEXISTS', usage, 'responses') - redis.call('HEXISTS', usage, 'tombstones')
      - redis.call('HEXISTS', usage, 'trees') - redis.call('HEXISTS', usage, 'bytes')
  end

  -- Move counters of tenants; whether none is left. What is no counter of a tenant stays.
  local function counters()
    local page, cursor = 0, '0'
    while page < PAGES and other_fields() > 0 do
      local found = redis.call('HSCAN', usage, cursor, 'COUNT', PAGE)
      cursor, page = found[1], page + 1
      for at = 1, #found[2], 2 do
        local field, tenant = string.match(found[2][at], '^(%l+)/(.+)$')
        if field then
          adopt_counter(field, tenant, found[2][at + 1])
        end
      end
      if cursor == '0' then
        return true
      end
    end
    return other_fields() == 0
  end

  -- Put the next trees where they belong among those of their tenant. Goes round all of them, from sweep to sweep; whether
  -- that is still the first time.
  local function indexed()
    local sweeps = shard_key('sweeps')
    local from, once = unpack(redis.call('HMGET', sweeps, 'indexing', 'indexed'))
    from = from or FORGOTTEN
    local page = redis.call('ZRANGE', trees, from, '+inf', 'BYSCORE', 'LIMIT', 0, INDEXED, 'WITHSCORES')
    for at = 1, #page, 2 do
      local tenant, root = split(page[at])
      if redis.call('ZSCORE', trees_of(tenant), root) ~= page[at + 1] then
        place_tree(tenant, root, page[at + 1])
      end
    end
    local on = FORGOTTEN
    if #page == 2 * INDEXED then
      on = page[#page] == from and '(' .. from or page[#page] -- as many of the same moment
    end
    if on ~= from then
      redis.call('HSET', sweeps, 'indexing', on)
    end
    if on == FORGOTTEN and not once then
      redis.call('HSET', sweeps, 'indexed', 1)
    end
    return on ~= FORGOTTEN and not once
  end

  -- Move some of all, of leaves and tombstones the newest first and once no older release writes there; whether there may be
  -- more to move.
  local function some()
    local counted = counters()
    local newest = redis.call('ZRANGE', leaves, 0, 0, 'REV', 'WITHSCORES')[2]
    if not newest or tonumber(newest) > now_us - QUIET_US then
      return not counted
    end
    for _, member in ipairs(redis.call('ZRANGE', leaves, 0, ADOPTED - 1, 'REV')) do
      local tenant, digits = split(member)
      local turn = turn_of(tenant, digits)
      leave_former(tenant, digits)
      if turn.children == '0' and turn.deleted then
        place_tombstone(tenant, digits, unpinned_from(key('pins', tenant, digits)))
      elseif turn.children == '0' then
        place_leaf(tenant, digits, turn.touched)
      end
    end
    return former > 0 or not counted
  end

  -- The first leaf in `leaves` that may go and whose tenant has more than its share: its tenant, its digits and its turn; and
  -- how many turns may still be looked at.
  local function oldest(is_over, kept, stays)
    local rank, looks = stays[FORMER] or 0, LOOKS
    while rank ~= ALL and former > 0 and looks > 0 do
      looks = looks - 1
      local member, score = unpack(redis.call('ZRANGE', leaves, rank, rank, 'WITHSCORES'))
      local name, digits = split(member or FORMER)
      local turn = member and is_over(name) and turn_of(name, digits)
      if not member then
        rank = ALL
      elseif not turn then
        rank = rank + 1
      elseif turn.children ~= '0' then
        leave_former(name, digits)
      elseif not turn.deleted and turn.touched ~= score then -- one of ours has used it since
        leave_former(name, digits)
        place_leaf(name, digits, turn.touched)
      elseif member ~= kept and not is_held(name, digits, turn) then
        return name, digits, turn, looks
      else
        rank = rank + 1
      end
      stays[FORMER] = rank
    end
    return nil, nil, nil, looks
  end

  return { counters_of = counters_of, counters = counters, some = some, indexed = indexed, oldest = oldest }
end
