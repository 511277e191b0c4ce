-- Shared by the scripts that take tombstones away: which one goes next.
-- Invariant: what is not in the place where it belongs any more, or never was, loses that place and nothing else.

-- A tombstone that nothing needs, as its tenant, its digits and what is known of it; nothing where there is none.
local function unneeded_tombstone()
  local places = former > 0 and { shard_key('tombstones'), leaves } or { shard_key('tombstones') }
  for _, place in ipairs(places) do
    for _ = 1, LOOKS do
      local member = redis.call('ZRANGE', place, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1)[1]
      if not member then
        break
      end
      local tenant, digits = split(member)
      local turn = turn_of(tenant, digits)
      if turn.deleted and turn.children == '0' then
        return tenant, digits, turn
      end
      displace_leaf(tenant, digits, true)
    end
  end
end
