"""Batches: the record of each, for all who share a store, and which of them are under way.

A record is bytes here; its caller gives them a meaning. All of a tenant's are in one shard, so that they can be
listed and counted. They are kept for 30 days after the last change of any.
"""

from zlib import crc32

from store.errors import StoreFull
from store.history.history import ConversationHistoryStore
from store.keys import Key, TurnKeys, checked_tenant, shard_of
from store.redis import scripts

PREFIX = "batch_"
MOST = 256
"""The most batches of a tenant, counting those that have ended."""

MOST_OPEN = 16
"""The most batches of a tenant that are under way."""

KEPT_MS = 30 * 86_400_000
MARK = b"batch:".hex()
"""Behind the shard in the digits of a batch."""


class StoredBatches:
    def __init__(self, history: ConversationHistoryStore) -> None:
        self.history = history

    def new_id(self, tenant: str) -> str:
        return PREFIX + self.history.ids.new(mark=MARK, shard=self.shard(tenant))

    def shard(self, tenant: str) -> int:
        """The shard that has a tenant's batches."""
        return crc32(tenant.encode()) % self.history.keyspace.shards

    async def keep(self, tenant: str, id: str, record: bytes, before: bytes = b"", *, under_way: bool) -> bool:
        """Store a batch's record in the place of the one `before`, empty for a new batch. Returns False, with nothing
        done, where another record is stored by now.

        Raises StoreFull where as many of the tenant are under way as may be, and StoreUnavailable. A new one takes the
        place of the oldest that has ended where there is no other.
        """
        keys = self._keys(tenant, id)
        if keys is None:
            return False
        (word,) = await self.history.server.run(
            scripts.keep_batch,
            keys,
            record=record,
            before=before,
            under_way=under_way,
            most=MOST,
            most_open=MOST_OPEN,
            kept_ms=KEPT_MS,
        )
        if word in (b"full", b"busy"):
            raise StoreFull(f"a tenant may have {MOST if word == b'full' else MOST_OPEN} batches")
        return word == b"ok"

    async def get(self, tenant: str, id: str) -> bytes | None:
        """The record of a batch, None where there is none. Raises StoreUnavailable."""
        keys = self._keys(tenant, id)
        if keys is None:
            return None
        return await self.history.server.command("HGET", self._key("batches", tenant), keys.digits)

    async def all(self, tenant: str) -> dict[str, bytes]:
        """The records of a tenant's batches, by their ids. Raises StoreUnavailable."""
        found: list[bytes] = await self.history.server.command("HGETALL", self._key("batches", tenant))
        return {PREFIX + digits.decode(): record for digits, record in zip(found[::2], found[1::2], strict=True)}

    async def drop(self, tenant: str, id: str) -> None:
        """Delete a batch that has ended. Raises StoreUnavailable."""
        keys = self._keys(tenant, id)
        if keys is not None:
            await self.history.server.command("HDEL", self._key("batches", tenant), keys.digits)

    async def under_way(self) -> list[tuple[str, str]]:
        """The tenants and ids of all batches that are under way. Raises StoreUnavailable."""
        found = list[tuple[str, str]]()
        for shard in self.history.keyspace.all_shards():
            for tenant in await self.history.server.command("SMEMBERS", shard.key_named("batching")):
                name = tenant.decode()
                opened = await self.history.server.command("SMEMBERS", self._key("batching", name))
                found += [(name, PREFIX + digits.decode()) for digits in opened]
        return found

    def _keys(self, tenant: str, id: str) -> TurnKeys | None:
        """The keys of a batch; None for an id that no batch of the tenant can have."""
        digits = id.removeprefix(PREFIX)
        known = id.startswith(PREFIX) and len(digits) == 48 and set(digits) <= set("0123456789abcdef")
        if not known or shard_of(digits) != self.shard(tenant):
            return None
        return self.history.keyspace.keys(tenant, digits)

    def _key(self, name: str, tenant: str) -> Key:
        shard = self.history.keyspace.all_shards()[self.shard(tenant)]
        return shard.key_named(f"{name}:{checked_tenant(tenant)}")
