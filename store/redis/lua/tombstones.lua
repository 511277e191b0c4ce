--- include removal
-- Shared by the scripts that take tombstones away: which one goes next.
-- Invariant: what is not in the place where it belongs any more, or never was, loses that place and nothing else.

-- A tombstone that nothing needs, as its tenant, its digits and what is known of it; nothing where there is none.
local function unneeded_tombstone()
  for _ = 1, LOOKS do
    local member = redis.call('ZRANGE', shard_key('tombstones'), '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 1)[1]
    if not member then
      return nil
    end
    local tenant, digits = split(member)
    local turn = turn_of(tenant, digits)
    if turn.deleted and turn.children == '0' then
      return tenant, digits, turn
    end
    displace_leaf(tenant, digits, true)
  end
end
