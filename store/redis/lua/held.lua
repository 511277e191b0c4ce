--- include usage
--- include walk
-- Shared by the scripts that write a turn: about how many bytes the server holds for its keys.
-- Invariant: it follows from the lengths of its values and from its depth, so nobody has to ask the server.
--
-- These are measured, in the middle between a server with jemalloc, which rounds up to one of four sizes for each power of two,
-- and one without (tests/store/history/test_account.py). A key has its name, its share of the tables and the head of its value.

local JOB_BYTES, SAID_BYTES = 700, 200

-- Of a turn at this depth with values of these lengths, of which 0 is none.
local function held_for(tenant, depth, ...)
  local NODE_BYTES, PATH_BYTES, VALUE_BYTES = 405, 2300, 66
  local NAME_BYTES = 60 -- of a key of a turn, beside the prefix and the tenant
  local ROUNDED_PART = 22 -- the part of a value by which it is rounded up
  local name = #turns + #tenant + NAME_BYTES
  local held = name + NODE_BYTES + (has_path(depth) and PATH_BYTES or 0)
  for at = 1, select('#', ...) do
    local length = select(at, ...)
    if length > 0 then
      held = held + name + VALUE_BYTES + length + (length - length % ROUNDED_PART) / ROUNDED_PART
    end
  end
  return held
end

-- Note that it is so much now, and was `before`.
local function note_held(tenant, digits, before, held)
  call('HSET', key('node', tenant, digits), 'held', held)
  count(tenant, 'bytes', held - before)
end
