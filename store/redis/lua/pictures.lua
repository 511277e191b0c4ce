--- include usage
-- Shared by the scripts that add turns, change them or take them away: the pictures that turns show.
-- Arguments: pictures  those that the turn shows: of each its digest in hex, its length in ten digits, and its bytes
-- Invariant: a picture is stored once for a tenant, as long as a turn shows it: its hash has its `bytes`, and how many `turns`
-- show it. `pictures` of a node has the digests, each once. They are no part of its `held`: a picture counts once, when it is
-- made, and SHOWN_BYTES for each turn that shows it.

local SHOWN_BYTES = 400 -- a node with two of them or more is no longer small

-- About how many bytes the server holds for a picture of this length, as held.lua counts.
local function picture_bytes(tenant, length)
  local PICTURE_BYTES, ROUNDED_PART = 360, 22 -- measured as in held.lua
  return #turns + #tenant + PICTURE_BYTES + length + math.floor(length / ROUNDED_PART)
end

-- A turn shows pictures from now on, beside those that it shows already; the bytes of those that were made for it.
local function show(tenant, digits, pictures)
  if pictures == '' then
    return 0
  end
  local DIGEST_DIGITS, LENGTH_DIGITS = 64, 10
  local node, at, made, number = key('node', tenant, digits), 1, 0, 0
  local shown = call('HGET', node, 'pictures') or ''
  while at <= #pictures do
    local digest, from = string.sub(pictures, at, at + DIGEST_DIGITS - 1), at + DIGEST_DIGITS + LENGTH_DIGITS
    local length = tonumber(string.sub(pictures, at + DIGEST_DIGITS, from - 1))
    if not string.find(shown, digest, 1, true) then
      local picture = key('picture', tenant, digest)
      if call('HINCRBY', picture, 'turns', '1') == 1 then
        call('HSET', picture, 'bytes', string.sub(pictures, from, from + length - 1))
        made = made + picture_bytes(tenant, length)
      end
      shown, number = shown .. digest, number + 1
    end
    at = from + length
  end
  call('HSET', node, 'pictures', shown)
  count(tenant, 'bytes', made + SHOWN_BYTES * number)
  return made
end

-- A turn that has `shown` pictures shows no more of them than those that are `left`. The last turn takes a picture with it.
local function unshow(tenant, digits, shown, left)
  local node, stay = key('node', tenant, digits), ''
  for digest in string.gmatch(shown, string.rep('%x', 64)) do
    local picture = key('picture', tenant, digest)
    if string.find(left, digest, 1, true) then
      stay = stay .. digest
    else
      -- one that is damaged stays as it is, for fsck
      local length, turns_left = redis.pcall('HSTRLEN', picture, 'bytes'), redis.pcall('HINCRBY', picture, 'turns', '-1')
      local gone = (tonumber(turns_left) or 1) <= 0 and call('UNLINK', picture) == 1 and length > 0
      count(tenant, 'bytes', -SHOWN_BYTES - (gone and picture_bytes(tenant, length) or 0))
    end
  end
  if stay == '' then
    call('HDEL', node, 'pictures')
  else
    call('HSET', node, 'pictures', stay)
  end
end
