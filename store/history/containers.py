"""Containers: records of the sessions in which a tenant's code runs, for all who share a store.

A record is bytes here; its caller gives them a meaning. All of a tenant's are in one shard, so that they can be
listed and counted. They are kept for a day after the last change of any: sessions live for minutes.
"""

from zlib import crc32

from store.errors import StoreFull
from store.history.history import ConversationHistoryStore
from store.keys import Key, TurnKeys, checked_tenant, shard_of
from store.redis import scripts

PREFIX = "cntr_"
MOST = 128
"""The most containers of a tenant, counting those that were deleted or whose session has ended."""

KEPT_MS = 86_400_000
MARK = b"contnr".hex()
"""Behind the shard in the digits of a container."""


class StoredContainers:
    def __init__(self, history: ConversationHistoryStore) -> None:
        self.history = history

    def new_id(self, tenant: str) -> str:
        return PREFIX + self.history.ids.new(mark=MARK, shard=self._shard(tenant))

    async def keep(self, tenant: str, id: str, record: bytes, before: bytes = b"") -> bool:
        """Store a container's record in the place of the one `before`, empty for a new container. Returns False, with
        nothing done, where another record is stored by now.

        Raises StoreFull where the tenant has as many as it may, and StoreUnavailable.
        """
        keys = self._keys(tenant, id)
        if keys is None:
            return False
        (word,) = await self.history.server.run(
            scripts.keep_container, keys, record=record, before=before, most=MOST, kept_ms=KEPT_MS
        )
        if word == b"full":
            raise StoreFull(f"a tenant may have {MOST} containers")
        return word == b"ok"

    async def get(self, tenant: str, id: str) -> bytes | None:
        """The record of a container, None where there is none. Raises StoreUnavailable."""
        keys = self._keys(tenant, id)
        if keys is None:
            return None
        return await self.history.server.command("HGET", self._key(tenant), keys.digits)

    async def all(self, tenant: str) -> dict[str, bytes]:
        """The records of a tenant's containers, by their ids. Raises StoreUnavailable."""
        found: list[bytes] = await self.history.server.command("HGETALL", self._key(tenant))
        return {PREFIX + digits.decode(): record for digits, record in zip(found[::2], found[1::2], strict=True)}

    async def drop(self, tenant: str, id: str) -> bool:
        """Delete a container, and return whether it was there. Raises StoreUnavailable."""
        keys = self._keys(tenant, id)
        if keys is None:
            return False
        return bool(await self.history.server.command("HDEL", self._key(tenant), keys.digits))

    def _shard(self, tenant: str) -> int:
        return crc32(tenant.encode()) % self.history.keyspace.shards

    def _keys(self, tenant: str, id: str) -> TurnKeys | None:
        """The keys of a container; None for an id that no container of the tenant can have."""
        digits = id.removeprefix(PREFIX)
        known = id.startswith(PREFIX) and len(digits) == 48 and set(digits) <= set("0123456789abcdef")
        if not known or shard_of(digits) != self._shard(tenant):
            return None
        return self.history.keyspace.keys(tenant, digits)

    def _key(self, tenant: str) -> Key:
        shard = self.history.keyspace.all_shards()[self._shard(tenant)]
        return shard.key_named(f"containers:{checked_tenant(tenant)}")
