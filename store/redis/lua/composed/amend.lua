#!lua
local node = KEYS[1]; local response = KEYS[2]; local clock = KEYS[3]; local usage = KEYS[4]; local leaves = KEYS[5]; local trees = KEYS[6]; local turns = ARGV[1]; local tenant = ARGV[2]; local digits = ARGV[3]; local parent = ARGV[4]; local room = tonumber(ARGV[5]); local max_responses = tonumber(ARGV[6]); local max_trees = tonumber(ARGV[7]); local max_bytes = tonumber(ARGV[8]); local idle_us = tonumber(ARGV[9]); local budget = tonumber(ARGV[10]); local response_blob = ARGV[11]
local seldom, defined_0
local shard = string.sub(turns, 1, -#'t:' - 1)

local moment = redis.call('TIME')

local now_us = moment[1] * 1000000 + moment[2]

local function next_score(clock)
  local next_one = (string.format('%.0f', now_us))
  local last = redis.call('SET', clock, next_one, 'GET')
  if last and tonumber(last) >= tonumber(next_one) then
    next_one = (string.format('%.0f', (last + 1)))
    redis.call('SET', clock, next_one)
  end
  return next_one
end
local function gone(tenant, root, idle_us)
  local used = tonumber(redis.call('ZSCORE', trees, tenant .. '/' .. root) or 0)
  if used > 0 and (idle_us == 0 or used > now_us - idle_us or redis.call('EXISTS', (shard .. 'archive')) == 1) then
    return false
  end
  return used == 0 or not seldom('outlasts')(tenant, root)
end
local plain = redis.call('EXISTS', (shard .. 'leaves'), (shard .. 'archive'), (shard .. 'unarchived')) == 0
local former = plain and 0 or redis.call('ZCARD', (shard .. 'leaves'))

local KEY_BYTES, LEAF_BYTES, LISTED_BYTES, INDEXED_BYTES, TREE_BYTES, NOTED_BYTES = 16, 195, 135, 155, 320, 480

local noted = redis.call('HMGET', usage, 'responses', 'tombstones', 'trees', 'bytes')

local counted = { responses = tonumber(noted[1]) or 0, tombstones = tonumber(noted[2]) or 0,
  trees = tonumber(noted[3]) or 0, bytes = tonumber(noted[4]) or 0 }
local owned = {}

local evicted = {}

local function needed(most_bytes)
  local responses_now, trees_now, bytes_now
  do
    local bytes = counted.bytes + (plain and 0 or former * LEAF_BYTES + redis.call('ZCARD', (shard .. 'unarchived')) * NOTED_BYTES) + counted.trees * TREE_BYTES
    responses_now, trees_now, bytes_now = counted.responses, counted.trees, bytes
  end
  local added = parent == '' and 1 or 0
  if max_trees > 0 and trees_now + added > max_trees then
    return 'trees', max_trees, added
  elseif max_responses > 0 and responses_now + 1 > max_responses then
    return 'responses', max_responses, 1
  elseif bytes_now > most_bytes then
    return 'bytes', most_bytes + room - (plain and 0 or former * LEAF_BYTES + redis.call('ZCARD', (shard .. 'unarchived')) * NOTED_BYTES), room
  end
end


function seldom(name)
  if not defined_0 then
    local budget = tonumber(ARGV[10])
    local digits = ARGV[3]
    local leaves = KEYS[5]
    local parent = ARGV[4]
    local tenant = ARGV[2]
    local trees = KEYS[6]
    local turns = ARGV[1]
    local usage = KEYS[4]
    local seldom, defined_1
    local MOST_LEAVES = 10000
    local CONVERSATIONS = '??636f6e766572*'

    local function conversation_in(tenant, root)
      if redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'named') == 0 then
        return nil
      end
      local cursor, seen = '0', 0
      repeat
        local page = redis.call('SSCAN', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), cursor, 'MATCH', CONVERSATIONS, 'COUNT', 1000)
        for _, digits in ipairs(page[2]) do
          if redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'deleted') == 0 then
            return digits
          end
        end
        cursor, seen = page[1], seen + 1000
      until cursor == '0' or seen >= MOST_LEAVES
      return cursor ~= '0' or nil
    end

    local function outlasts(tenant, root)
      return (redis.call('HEXISTS', (turns .. tenant .. ':' .. 'node' .. ':' .. root), 'jobs') == 1) or conversation_in(tenant, root)
    end

    local now_ms = math.floor(now_us / 1000)

    local function awaited(tenant, digits)
      local job = redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'awaits')
      return job and redis.call('EXISTS', (turns .. tenant .. ':' .. 'job' .. ':' .. job)) == 1 and job or nil
    end

    local CONVERSATION_MARK = '636f6e766572'

    local function is_older(tenant, root)
      local noted = redis.call('GET', (shard .. 'older'))
      return noted and tonumber(redis.call('ZSCORE', (shard .. 'trees'), tenant .. '/' .. root) or 0) > tonumber(noted)
    end

    local AT_ONCE_US = 9000000000000000

    local function archive_next(tenant, root, used)
      local member = tenant .. '/' .. root
      local due = tonumber(redis.call('ZSCORE', (shard .. 'unarchived'), member) or 0)
      if due > now_us / 1000 + (redis.call('GET', (shard .. 'archive')) or 0) then
        return false
      end
      redis.call('ZADD', (shard .. 'unarchived'), 'XX', 'LT', (string.format('%.0f', (used - AT_ONCE_US))), member)
      return true
    end

    local function is_unarchived(tenant, root, digits, touched)
      local lacks = redis.call('ZSCORE', ((shard .. ('changes:' .. tenant .. '/' .. root))), '+' .. digits)
      local older = not lacks and is_older(tenant, root)
      if not (lacks or older) or (redis.call('EXISTS', (shard .. 'archive-away')) == 1) then
        return false
      end
      if older then
        do
          local tenant, root, member, score = tenant, root, '+' .. digits, next_score((shard .. 'clock'))
          local after = not plain and redis.call('GET', (shard .. 'archive'))
          if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
            and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
            redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
          end
        end
      end
      return true, archive_next(tenant, root, touched)
    end

    local function note_logged(bytes)
      local total = redis.call('INCRBY', (shard .. 'logged'), (string.format('%.0f', bytes)))
      if total == 0 then
        redis.call('DEL', (shard .. 'logged'))
      end
      return total
    end

    local function held_for_a_run(family, tenant, digits)
      local pins = (turns .. tenant .. ':' .. family .. ':' .. digits)
      return redis.call('EXISTS', pins) == 1 and (redis.call('ZCOUNT', pins, '(' .. now_ms, '+inf') > 0)
    end

    local function is_held(tenant, digits, turn)
      if held_for_a_run('pins', tenant, digits) or (turn.awaits and awaited(tenant, digits)) then
        return true
      end
      return is_unarchived(tenant, turn.root, digits, turn.touched)
    end

    local function leave(tenant, digits, root, touched)
      local node = (turns .. tenant .. ':' .. 'node' .. ':' .. digits)
      local children, own, deleted = unpack(redis.call('HMGET', node, 'children', 'touched', 'deleted'))
      if children ~= '1' then
        redis.call('HINCRBY', node, 'children', '-1')
        return false
      end
      if tonumber(own) < tonumber(touched) then
        own = touched
      end
      redis.call('HSET', node, 'children', '0', 'touched', own)
      if deleted then
        do
          local tenant, digits, unpinned = tenant, digits, (redis.call('ZRANGE', ((turns .. tenant .. ':' .. 'pins' .. ':' .. digits)), -1, -1, 'WITHSCORES')[2] or 0)
          local added = redis.call('ZADD', (shard .. 'tombstones'), unpinned, tenant .. '/' .. digits)
          do
            local tenant, field, change = tenant, 'bytes', LEAF_BYTES * added
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end
      else
        do
          local tenant, digits, score = tenant, digits, own
          do
            local tenant, field, change = tenant, 'bytes', LEAF_BYTES * redis.call('ZADD', (leaves .. ':' .. tenant), score, digits)
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end
      end
      redis.call('SADD', (turns .. tenant .. ':' .. 'tree' .. ':' .. root), digits)
      return deleted and not held_for_a_run('pins', tenant, digits)
    end

    local function turn_of(tenant, digits)
      local root, parent, deleted, held, touched, log_bytes, children, awaits = unpack(redis.call('HMGET',
        (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits'))
      return { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
        children = children, awaits = awaits }
    end

    local function remove(tenant, digits, turn)
      turn = turn or turn_of(tenant, digits)
      local node, root, parent = (turns .. tenant .. ':' .. 'node' .. ':' .. digits), turn.root, turn.parent
      local messages, response = (turns .. tenant .. ':' .. 'messages' .. ':' .. digits), (turns .. tenant .. ':' .. 'response' .. ':' .. digits)
      local pins, tree = (turns .. tenant .. ':' .. 'pins' .. ':' .. digits), (turns .. tenant .. ':' .. 'tree' .. ':' .. root)
      do
        local tenant, digits, deleted = tenant, digits, turn.deleted
        local gone
        if deleted then
          gone = redis.call('ZREM', (shard .. 'tombstones'), tenant .. '/' .. digits)
        else
          gone = redis.call('ZREM', (leaves .. ':' .. tenant), digits)
        end
        do
          local tenant, field, change = tenant, 'bytes', -LEAF_BYTES * gone
          local own = owned[tenant]
          if not own then
            own = { responses = 0, bytes = 0 }
            owned[tenant] = own
          end
          own[field] = (own[field] or 0) + change
          counted[field] = counted[field] + change
        end
        do
          local tenant, digits = tenant, digits
          if former > 0 then
            former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
          end
        end
      end
      if not turn.deleted and (string.sub(digits, 3, 2 + #CONVERSATION_MARK) == CONVERSATION_MARK) then
        do
          local tenant, digits = tenant, digits
          do
            local tenant, field, change = tenant, 'bytes', -LISTED_BYTES * redis.call('ZREM', ((shard .. ('conversations:' .. tenant))), digits)
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end
      end
      do
        local tenant, field, change = tenant, turn.deleted and 'tombstones' or 'responses', -1
        local own = owned[tenant]
        if not own then
          own = { responses = 0, bytes = 0 }
          owned[tenant] = own
        end
        own[field] = (own[field] or 0) + change
        counted[field] = counted[field] + change
      end
      do
        local tenant, field, change = tenant, 'bytes', -(turn.held or 0)
        local own = owned[tenant]
        if not own then
          own = { responses = 0, bytes = 0 }
          owned[tenant] = own
        end
        own[field] = (own[field] or 0) + change
        counted[field] = counted[field] + change
      end
      if turn.log_bytes then
        do
          local tenant, digits, log_bytes = tenant, digits, turn.log_bytes
          redis.call('UNLINK', (turns .. tenant .. ':' .. 'log' .. ':' .. digits), (turns .. tenant .. ':' .. 'snapshot' .. ':' .. digits))
          redis.call('ZREM', (shard .. 'logs'), tenant .. '/' .. digits)
          note_logged(0 - log_bytes)
          do
            local tenant, digits, payload = tenant, digits, 'gone'
            redis.call('SPUBLISH', (turns .. tenant .. ':' .. 'events' .. ':' .. digits), payload)
          end
        end
      end
      if parent == '' then
        redis.call('UNLINK', node, messages, response, pins, tree, (turns .. tenant .. ':' .. 'runs' .. ':' .. digits))
        do
          local tenant, digits, turn = tenant, digits, turn
          if turn.deleted then
            redis.call('UNLINK', (turns .. tenant .. ':' .. 'remains' .. ':' .. digits))
          end
        end
        do
          local tenant, root = tenant, digits
          redis.call('ZREM', trees, tenant .. '/' .. root)
          do
            local tenant, field, change = tenant, 'bytes', -INDEXED_BYTES * redis.call('ZREM', (trees .. ':' .. tenant), root)
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end
        do
          local tenant, field, change = tenant, 'trees', -1
          local own = owned[tenant]
          if not own then
            own = { responses = 0, bytes = 0 }
            owned[tenant] = own
          end
          own[field] = (own[field] or 0) + change
          counted[field] = counted[field] + change
        end
        return '', false
      end
      redis.call('UNLINK', node, messages, response, pins)
      do
        local tenant, digits, turn = tenant, digits, turn
        if turn.deleted then
          redis.call('UNLINK', (turns .. tenant .. ':' .. 'remains' .. ':' .. digits))
        end
      end
      local unneeded = leave(tenant, parent, root, turn.touched)
      redis.call('SREM', tree, digits)
      return parent, unneeded
    end

    local function take(tenant, digits, budget, turn)
      for taken = 1, budget do
        local parent, unneeded = remove(tenant, digits, turn)
        if not unneeded then
          return taken
        end
        digits, turn = parent, nil
      end
      return budget
    end
    local function each_evicted()
      local told = ''
      for field, turns in pairs(evicted) do
        told = told .. (told == '' and '' or ' ') .. field .. '=' .. turns
      end
      return told
    end

    local function first_of_own(field)
      if field == 'trees' or former > 0 or redis.call('ZRANGE', usage .. ':' .. field, '-1', '-1')[1] ~= tenant then
        return nil
      end
      local found, score = unpack(redis.call('ZRANGE', (leaves .. ':' .. tenant), '0', '0', 'WITHSCORES'))
      local turn = found and found ~= parent and turn_of(tenant, found)
      if turn and turn.children == '0' and not turn.deleted and turn.touched == score
        and not is_held(tenant, found, turn) then
        return found, turn
      end
    end

    local function evict_until(root, most_bytes, stays, tree_rank)
      local next_one, left = nil, budget
      local field, limit, adds = needed(most_bytes)
      while field and left > 0 do
        do
          local changed = {}
          for tenant, own in pairs(owned) do
            own.bytes = own.bytes + (own.trees or 0) * TREE_BYTES
            for field, change in pairs(own) do
              if change ~= 0 then
                do
                  local tenant, field, change = tenant, field, change
                  if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
                    redis.call('ZREM', usage .. ':' .. field, tenant)
                  end
                end
                if counted[field] == 0 then
                  redis.call('HDEL', usage, field)
                else
                  changed[#changed + 1], changed[#changed + 2] = field, counted[field]
                end
              end
            end
          end
          if changed[1] then
            redis.call('HSET', usage, unpack(changed))
          end
          owned = {}
        end
        local name, found, turn = tenant, nil, nil
        if not next(stays) then
          found, turn = first_of_own(field)
        end
        if not found then
          next_one = next_one or seldom('choosing')(root, stays)
          name, found, turn, tree_rank = next_one(field, limit, adds, tree_rank)
        end
        if not found then
          return 'full', 0
        elseif found == true then
          return 'again', tree_rank
        end
        local taken = take(name, found, left, turn)
        evicted[field] = (evicted[field] or 0) + taken
        left = left - taken
        field, limit, adds = needed(most_bytes)
      end
      return field and 'again' or 'ok', tree_rank
    end


    function seldom(name)
      if not defined_1 then
        local function place_leaf(tenant, digits, score)
          do
            local tenant, field, change = tenant, 'bytes', LEAF_BYTES * redis.call('ZADD', (leaves .. ':' .. tenant), score, digits)
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end

        local function place_tombstone(tenant, digits, unpinned)
          local added = redis.call('ZADD', (shard .. 'tombstones'), unpinned, tenant .. '/' .. digits)
          do
            local tenant, field, change = tenant, 'bytes', LEAF_BYTES * added
            local own = owned[tenant]
            if not own then
              own = { responses = 0, bytes = 0 }
              owned[tenant] = own
            end
            own[field] = (own[field] or 0) + change
            counted[field] = counted[field] + change
          end
        end

        local function is_unarchived_tree(tenant, root)
          if redis.call('EXISTS', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
            local used = redis.call('ZSCORE', (shard .. 'trees'), tenant .. '/' .. root) or 0
            return true, archive_next(tenant, root, used)
          end
          return is_older(tenant, root), true
        end

        local function has_unarchived(tenant, root)
          local lacks, soon = is_unarchived_tree(tenant, root)
          return lacks and not (redis.call('EXISTS', (shard .. 'archive-away')) == 1), soon
        end

        local LOOKS = 500

        local function unneeded_tombstone()
          local places = former > 0 and { (shard .. 'tombstones'), leaves } or { (shard .. 'tombstones') }
          for _, place in ipairs(places) do
            for _ = 1, LOOKS do
              local member = redis.call('ZRANGE', place, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1)[1]
              if not member then
                break
              end
              local tenant, digits
              do
                local member = member
                local slash = string.find(member, '/', 1, true)
                tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
              end
              local turn
              do
                local tenant, digits = tenant, digits
                local root, parent, deleted, held, touched, log_bytes, children, awaits = unpack(redis.call('HMGET',
                  (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits'))
                turn = { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
                  children = children, awaits = awaits }
              end
              if turn.deleted and turn.children == '0' then
                return tenant, digits, turn
              end
              do
                local tenant, digits, deleted = tenant, digits, true
                local gone
                if deleted then
                  gone = redis.call('ZREM', (shard .. 'tombstones'), tenant .. '/' .. digits)
                else
                  gone = redis.call('ZREM', (leaves .. ':' .. tenant), digits)
                end
                do
                  local tenant, field, change = tenant, 'bytes', -LEAF_BYTES * gone
                  local own = owned[tenant]
                  if not own then
                    own = { responses = 0, bytes = 0 }
                    owned[tenant] = own
                  end
                  own[field] = (own[field] or 0) + change
                  counted[field] = counted[field] + change
                end
                do
                  local tenant, digits = tenant, digits
                  if former > 0 then
                    former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
                  end
                end
              end
            end
          end
        end
        local ALL = -1

        local function sharing(field, limit, adds)
          local TIED = 5
          local PASSED = 100
          local counted = usage .. ':' .. field
          local own, tenants = tonumber(redis.call('ZSCORE', counted, tenant) or nil), redis.call('ZCARD', counted)
          local share = limit / (own and tenants or tenants + 1)
          own = (own or 0) + adds

          local function least_recent(names, number, stays)
            local tied = #names >= TIED and redis.call('ZCOUNT', counted, number, number) or 0
            if tied > #names then
              local from = tonumber(string.sub(digits, -6), 16) % (tied - TIED + 1)
              names = redis.call('ZRANGE', counted, number, number, 'BYSCORE', 'LIMIT', from, TIED)
            end
            local found, least
            for _, name in ipairs(names) do
              local used = tonumber(redis.call('ZRANGE', (leaves .. ':' .. name), 0, 0, 'WITHSCORES')[2] or nil)
              if stays[name] ~= ALL and name ~= tenant and (not found or (used and used < least)) then
                found, least = name, used or math.huge
              end
            end
            return found
          end

          local function giver(stays)
            local passed = 0
            for _, rank in pairs(stays) do
              passed = passed + (rank == ALL and 1 or 0)
            end
            local itself = stays[tenant] ~= ALL and tenant or nil
            if passed > PASSED then
              return itself
            end
            local most, names = itself and own or -math.huge, {}
            local page = redis.call('ZRANGE', counted, 0, passed + TIED, 'REV', 'WITHSCORES')
            for at = 1, #page, 2 do
              local name, number = page[at], tonumber(page[at + 1])
              if name ~= tenant and stays[name] ~= ALL and number > share
                and (number > most or (names[1] and number == most)) then
                most, names[#names + 1] = number, name
              end
            end
            return names[2] and least_recent(names, most, stays) or names[1] or itself
          end

          local known = { [tenant] = own > share }
          local function is_over(name)
            if known[name] == nil then
              known[name] = (tonumber(redis.call('ZSCORE', counted, name) or nil) or 0) > share
            end
            return known[name]
          end

          return giver, is_over
        end
        local function adopting()
          local QUIET_US = 600 * 1000000
          local ADOPTED = 200
          local PAGES, PAGE = 4, 100
          local INDEXED = 500
          local FORGOTTEN = '(0'
          local FORMER = '/'

          local function adopt_counter(field, tenant, noted)
            local change = tonumber(noted) or 0
            redis.call('HDEL', usage, field .. '/' .. tenant)
            if change ~= 0 then
              do
                local tenant, field, change = tenant, field, change
                if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
                  redis.call('ZREM', usage .. ':' .. field, tenant)
                end
              end
            end
            if change ~= 0 and field == 'trees' then
              do
                local tenant, field, change = tenant, 'bytes', change * TREE_BYTES
                if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
                  redis.call('ZREM', usage .. ':' .. field, tenant)
                end
              end
            end
          end

          local function counters_of(tenant)
            for _, field in ipairs({ 'responses', 'tombstones', 'trees', 'bytes' }) do
              local noted = redis.call('HGET', usage, field .. '/' .. tenant)
              if noted then
                adopt_counter(field, tenant, noted)
              end
            end
          end

          local function other_fields()
            return redis.call('HLEN', usage)
              - redis.call('HEXISTS', usage, 'responses') - redis.call('HEXISTS', usage, 'tombstones')
              - redis.call('HEXISTS', usage, 'trees') - redis.call('HEXISTS', usage, 'bytes')
          end

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

          local function indexed()
            local sweeps = (shard .. 'sweeps')
            local from, once = unpack(redis.call('HMGET', sweeps, 'indexing', 'indexed'))
            from = from or FORGOTTEN
            local page = redis.call('ZRANGE', trees, from, '+inf', 'BYSCORE', 'LIMIT', 0, INDEXED, 'WITHSCORES')
            for at = 1, #page, 2 do
              local tenant, root
              do
                local member = page[at]
                local slash = string.find(member, '/', 1, true)
                tenant, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
              end
              if redis.call('ZSCORE', (trees .. ':' .. tenant), root) ~= page[at + 1] then
                do
                  local tenant, root, score = tenant, root, page[at + 1]
                  redis.call('ZADD', trees, score, tenant .. '/' .. root)
                  do
                    local tenant, field, change = tenant, 'bytes', INDEXED_BYTES * redis.call('ZADD', (trees .. ':' .. tenant), score, root)
                    local own = owned[tenant]
                    if not own then
                      own = { responses = 0, bytes = 0 }
                      owned[tenant] = own
                    end
                    own[field] = (own[field] or 0) + change
                    counted[field] = counted[field] + change
                  end
                end
              end
            end
            local on = FORGOTTEN
            if #page == 2 * INDEXED then
              on = page[#page] == from and '(' .. from or page[#page]
            end
            if on ~= from then
              redis.call('HSET', sweeps, 'indexing', on)
            end
            if on == FORGOTTEN and not once then
              redis.call('HSET', sweeps, 'indexed', 1)
            end
            return on ~= FORGOTTEN and not once
          end

          local function some()
            local counted = counters()
            local newest = redis.call('ZRANGE', leaves, 0, 0, 'REV', 'WITHSCORES')[2]
            if not newest or tonumber(newest) > now_us - QUIET_US then
              return not counted
            end
            for _, member in ipairs(redis.call('ZRANGE', leaves, 0, ADOPTED - 1, 'REV')) do
              local tenant, digits
              do
                local member = member
                local slash = string.find(member, '/', 1, true)
                tenant, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
              end
              local turn
              do
                local tenant, digits = tenant, digits
                local root, parent, deleted, held, touched, log_bytes, children, awaits = unpack(redis.call('HMGET',
                  (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits'))
                turn = { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
                  children = children, awaits = awaits }
              end
              do
                local tenant, digits = tenant, digits
                if former > 0 then
                  former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
                end
              end
              if turn.children == '0' and turn.deleted then
                place_tombstone(tenant, digits, (redis.call('ZRANGE', ((turns .. tenant .. ':' .. 'pins' .. ':' .. digits)), -1, -1, 'WITHSCORES')[2] or 0))
              elseif turn.children == '0' then
                place_leaf(tenant, digits, turn.touched)
              end
            end
            return former > 0 or not counted
          end

          local function oldest(is_over, kept, stays)
            local rank, looks = stays[FORMER] or 0, LOOKS
            while rank ~= ALL and former > 0 and looks > 0 do
              looks = looks - 1
              local member, score = unpack(redis.call('ZRANGE', leaves, rank, rank, 'WITHSCORES'))
              local name, digits
              do
                local member = member or FORMER
                local slash = string.find(member, '/', 1, true)
                name, digits = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
              end
              local turn = member and is_over(name) and turn_of(name, digits)
              if not member then
                rank = ALL
              elseif not turn then
                rank = rank + 1
              elseif turn.children ~= '0' then
                do
                  local tenant, digits = name, digits
                  if former > 0 then
                    former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
                  end
                end
              elseif not turn.deleted and turn.touched ~= score then
                do
                  local tenant, digits = name, digits
                  if former > 0 then
                    former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
                  end
                end
                do
                  local tenant, digits, score = name, digits, turn.touched
                  do
                    local tenant, field, change = tenant, 'bytes', LEAF_BYTES * redis.call('ZADD', (leaves .. ':' .. tenant), score, digits)
                    local own = owned[tenant]
                    if not own then
                      own = { responses = 0, bytes = 0 }
                      owned[tenant] = own
                    end
                    own[field] = (own[field] or 0) + change
                    counted[field] = counted[field] + change
                  end
                end
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
        local LOOKS_OF_UNARCHIVED = 20

        local function choosing(root, stays)
          local kept, kept_tree = tenant .. '/' .. parent, tenant .. '/' .. root
          local is_behind = false

          local function next_tree(giver, is_over, tree_rank)
            local member, used = unpack(redis.call('ZRANGE', trees, 0, 0, 'WITHSCORES'))
            if used == '0' then
              local name, root
              do
                local member = member
                local slash = string.find(member, '/', 1, true)
                name, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
              end
              return name, root, tree_rank
            end

            local looks = LOOKS
            local function may_go(name, root)
              if name .. '/' .. root == kept_tree or held_for_a_run('runs', name, root) or (redis.call('HEXISTS', (turns .. name .. ':' .. 'node' .. ':' .. root), 'jobs') == 1) then
                return false
              end
              local lacks, soon = has_unarchived(name, root)
              if lacks and soon then
                is_behind, looks = true, looks - LOOKS_OF_UNARCHIVED
              end
              return not lacks
            end

            local own
            for rank = tree_rank, tree_rank + LOOKS do
              if looks <= 0 then
                return tenant, own, own and tree_rank
              end
              member = redis.call('ZRANGE', trees, rank, rank)[1]
              if not member then
                return tenant, own, own and tree_rank
              end
              local name, root
              do
                local member = member
                local slash = string.find(member, '/', 1, true)
                name, root = string.sub(member, 1, slash - 1), string.sub(member, slash + 1)
              end
              if is_over(name) and may_go(name, root) then
                return name, root, rank
              elseif name == tenant and not own and may_go(name, root) then
                own = root
              end
            end
            local name = giver({})
            for _, digits in ipairs(name and redis.call('ZRANGE', (leaves .. ':' .. name), 0, LOOKS / 5) or {}) do
              local root = redis.call('HGET', (turns .. name .. ':' .. 'node' .. ':' .. digits), 'root')
              if root and may_go(name, root) then
                return name, root, tree_rank
              end
            end
            return tenant, own, own and tree_rank or tree_rank + LOOKS + 1
          end

          local function oldest_leaf(name, looks)
            local own, rank = (leaves .. ':' .. name), stays[name] or 0
            while looks > 0 do
              looks = looks - 1
              local found, score = unpack(redis.call('ZRANGE', own, rank, rank, 'WITHSCORES'))
              if not found then
                stays[name] = ALL
                return nil, nil, looks
              end
              local turn
              do
                local tenant, digits = name, found
                local root, parent, deleted, held, touched, log_bytes, children, awaits = unpack(redis.call('HMGET',
                  (turns .. tenant .. ':' .. 'node' .. ':' .. digits), 'root', 'parent', 'deleted', 'held', 'touched', 'log_bytes', 'children', 'awaits'))
                turn = { root = root, parent = parent, deleted = deleted, held = held, touched = touched, log_bytes = log_bytes,
                  children = children, awaits = awaits }
              end
              if turn.children ~= '0' or turn.deleted then
                do
                  local tenant, digits, deleted = name, found, nil
                  local gone
                  if deleted then
                    gone = redis.call('ZREM', (shard .. 'tombstones'), tenant .. '/' .. digits)
                  else
                    gone = redis.call('ZREM', (leaves .. ':' .. tenant), digits)
                  end
                  do
                    local tenant, field, change = tenant, 'bytes', -LEAF_BYTES * gone
                    local own = owned[tenant]
                    if not own then
                      own = { responses = 0, bytes = 0 }
                      owned[tenant] = own
                    end
                    own[field] = (own[field] or 0) + change
                    counted[field] = counted[field] + change
                  end
                  do
                    local tenant, digits = tenant, digits
                    if former > 0 then
                      former = former - redis.call('ZREM', leaves, tenant .. '/' .. digits)
                    end
                  end
                end
              elseif turn.touched ~= score then
                redis.call('ZADD', own, turn.touched, found)
              else
                local held, soon = name .. '/' .. found == kept, false
                if not held then
                  held, soon = is_held(name, found, turn)
                end
                if not held then
                  return found, turn, looks
                elseif soon then
                  is_behind, looks = true, looks - LOOKS_OF_UNARCHIVED
                end
                rank = rank + 1
                stays[name] = rank
              end
            end
            return nil, nil, 0
          end

          local function next_leaf(giver, is_over)
            local name, found, turn, looks = nil, nil, nil, LOOKS
            if former > 0 then
              name, found, turn, looks = adopting().oldest(is_over, kept, stays)
            end
            while not found and looks > 0 do
              name = giver(stays)
              if not name then
                return nil, false
              end
              found, turn, looks = oldest_leaf(name, looks)
            end
            return found and name, found or not is_behind, turn
          end

          return function(field, limit, adds, tree_rank)
            if former > 0 and not adopting().counters() then
              return nil, true, nil, tree_rank
            end
            local giver, is_over = sharing(field, limit, adds)
            local name, found, turn
            if field == 'trees' then
              name, found, tree_rank = next_tree(giver, is_over, tree_rank)
              if found then
                do
                  local tenant, root, score = name, found, 0
                  redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
                  redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
                end
                found = redis.call('SRANDMEMBER', (turns .. name .. ':' .. 'tree' .. ':' .. found))
              end
              return name, found or tree_rank and true, nil, tree_rank
            end
            name, found, turn = next_leaf(giver, is_over)
            if not found and field == 'bytes' then
              name, found, turn = unneeded_tombstone()
            end
            return name, found, turn, tree_rank
          end
        end
        defined_1 = { choosing = choosing }
      end
      return defined_1[name]
    end
    defined_0 = { each_evicted = each_evicted, evict_until = evict_until, outlasts = outlasts }
  end
  return defined_0[name]
end

local root, deleted, above = unpack(redis.call('HMGET', node, 'root', 'deleted', 'parent'))
if not root or deleted or gone(tenant, root, idle_us) then
  return { 'missing' }
end
if max_responses > 0 then
  max_responses = max_responses + 1
end
local verdict = (needed((max_bytes > 0 and max_bytes - room or math.huge)) and seldom('evict_until')(root, (max_bytes > 0 and max_bytes - room or math.huge), {}, 0) or 'ok')
if verdict ~= 'ok' then
  do
    local changed = {}
    for tenant, own in pairs(owned) do
      own.bytes = own.bytes + (own.trees or 0) * TREE_BYTES
      for field, change in pairs(own) do
        if change ~= 0 then
          do
            local tenant, field, change = tenant, field, change
            if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
              redis.call('ZREM', usage .. ':' .. field, tenant)
            end
          end
          if counted[field] == 0 then
            redis.call('HDEL', usage, field)
          else
            changed[#changed + 1], changed[#changed + 2] = field, counted[field]
          end
        end
      end
    end
    if changed[1] then
      redis.call('HSET', usage, unpack(changed))
    end
    owned = {}
  end
  return { verdict, (next(evicted) and seldom('each_evicted')() or '') }
end
redis.call('SET', response, response_blob)
redis.call('HSET', node, 'response_bytes', #response_blob)
do
  local root = root
  local score
  do
    local clock = clock
    local next_one = (string.format('%.0f', now_us))
    local last = redis.call('SET', clock, next_one, 'GET')
    if last and tonumber(last) >= tonumber(next_one) then
      next_one = (string.format('%.0f', (last + 1)))
      redis.call('SET', clock, next_one)
    end
    score = next_one
  end
  redis.call('HSET', node, 'touched', score)
  redis.call('ZADD', leaves .. ':' .. tenant, 'XX', score, digits)
  do
    local tenant, root, score = tenant, root, score
    redis.call('ZADD', trees, 'XX', score, tenant .. '/' .. root)
    redis.call('ZADD', (trees .. ':' .. tenant), 'XX', score, root)
  end
end
do
  local tenant, root, member, score = tenant, root, '+' .. digits, next_score(clock)
  local after = not plain and redis.call('GET', (shard .. 'archive'))
  if after and redis.call('ZADD', ((shard .. ('changes:' .. tenant .. '/' .. root))), score, member) == 1
    and redis.call('ZCARD', ((shard .. ('changes:' .. tenant .. '/' .. root)))) == 1 then
    redis.call('ZADD', (shard .. 'unarchived'), 'NX', (string.format('%.0f', (math.floor(now_us / 1000) + after))), tenant .. '/' .. root)
  end
end
do
  local tenant, conversation, above_held = tenant, digits, redis.call('HGET', (turns .. tenant .. ':' .. 'node' .. ':' .. above), 'chain_held') or 0
  local node = (turns .. tenant .. ':' .. 'node' .. ':' .. conversation)
  local before = redis.call('HGET', node, 'held') or 0
  local held = ((redis.call('MEMORY', 'USAGE', node, 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES) + ((redis.call('MEMORY', 'USAGE', ((turns .. tenant .. ':' .. 'messages' .. ':' .. conversation)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
    + ((redis.call('MEMORY', 'USAGE', ((turns .. tenant .. ':' .. 'response' .. ':' .. conversation)), 'SAMPLES', '0') or 0 - KEY_BYTES) + KEY_BYTES)
  redis.call('HSET', node, 'held', held, 'chain_held', (string.format('%.0f', (above_held + held))))
  do
    local tenant, field, change = tenant, 'bytes', held - before
    local own = owned[tenant]
    if not own then
      own = { responses = 0, bytes = 0 }
      owned[tenant] = own
    end
    own[field] = (own[field] or 0) + change
    counted[field] = counted[field] + change
  end
end
do
  local changed = {}
  for tenant, own in pairs(owned) do
    own.bytes = own.bytes + (own.trees or 0) * TREE_BYTES
    for field, change in pairs(own) do
      if change ~= 0 then
        do
          local tenant, field, change = tenant, field, change
          if redis.call('ZINCRBY', usage .. ':' .. field, change, tenant) == '0' then
            redis.call('ZREM', usage .. ':' .. field, tenant)
          end
        end
        if counted[field] == 0 then
          redis.call('HDEL', usage, field)
        else
          changed[#changed + 1], changed[#changed + 2] = field, counted[field]
        end
      end
    end
  end
  if changed[1] then
    redis.call('HSET', usage, unpack(changed))
  end
  owned = {}
end
return { 'ok', (next(evicted) and seldom('each_evicted')() or '') }
