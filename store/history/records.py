"""Records of a tenant's that are no turns, for all who share a store: its containers, its batches.

A record is bytes here; its caller gives them a meaning. All of a tenant's of a kind are in one shard, so that they can
be listed and counted.
"""

from collections.abc import Callable
from typing import NamedTuple

from store.errors import StoreFull, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import Key, TurnKeys, checked_tenant, shard_of
from store.redis import scripts

TRIES = 16
"""How often a record is changed that others change meanwhile."""


class RecordKind(NamedTuple):
    """A kind of records: its name, what its ids begin with, and its mark in their digits; how many a tenant has at
    most, counting those that are over, and for how long they are kept after the last change of any, once there is no
    work to do.
    """

    name: str
    prefix: str
    mark: str
    most: int
    kept_ms: int
    works: str = ""
    """The name of the index of those for which there is work to do, of which a tenant has `most_open` at most."""
    most_open: int = 0


class TenantRecords:
    """The records of one kind."""

    def __init__(self, history: ConversationHistoryStore, kind: RecordKind) -> None:
        self.history, self._kind = history, kind

    def new_id(self, tenant: str) -> str:
        return self._kind.prefix + self.history.ids.new(mark=self._kind.mark, shard=self._shard(tenant))

    async def keep(self, tenant: str, id: str, record: bytes, before: bytes = b"", *, under_way: bool = False) -> bool:
        """Store a record in the place of the one `before`, empty for a new one; `under_way` is whether there is work to
        do for it. Returns False, with nothing done, where another record is stored by now.

        Raises StoreFull where the tenant has as many as it may, and StoreUnavailable.
        """
        keys, kind = self._keys(tenant, id), self._kind
        if keys is None:
            return False
        (word,) = await self.history.server.run(
            scripts.keep_record,
            keys,
            kind=kind.name,
            record=record,
            before=before,
            works=kind.works,
            under_way=under_way,
            most=kind.most,
            most_open=kind.most_open,
            kept_ms=kind.kept_ms,
        )
        if word in (b"full", b"busy"):
            raise StoreFull(f"a tenant may have {kind.most if word == b'full' else kind.most_open} {kind.name}")
        return word == b"ok"

    async def change(self, tenant: str, id: str, edit: Callable[[bytes], tuple[bytes, bool]]) -> bytes | None:
        """Store a record as `edit` makes it of the one that is stored by then, also while others change it, and return
        it; None where there is none. `edit` says as well whether there is work to do for it.

        Raises what `edit` raises, and StoreUnavailable.
        """
        for _ in range(TRIES):
            before = await self.get(tenant, id)
            if before is None:
                return None
            record, under_way = edit(before)
            if record == before or await self.keep(tenant, id, record, before, under_way=under_way):
                return record
        raise StoreUnavailable(f"a record was changed by others {TRIES} times")

    async def get(self, tenant: str, id: str) -> bytes | None:
        """A record, None where there is none. Raises StoreUnavailable."""
        keys = self._keys(tenant, id)
        if keys is None:
            return None
        return await self.history.server.command("HGET", self._key(self._kind.name, tenant), keys.digits)

    async def all(self, tenant: str) -> dict[str, bytes]:
        """A tenant's records, by their ids. Raises StoreUnavailable."""
        found: list[bytes] = await self.history.server.command("HGETALL", self._key(self._kind.name, tenant))
        pairs = zip(found[::2], found[1::2], strict=True)
        return {self._kind.prefix + digits.decode(): record for digits, record in pairs}

    async def drop(self, tenant: str, id: str) -> bool:
        """Delete a record without work to do, and return whether it was there. Raises StoreUnavailable."""
        keys = self._keys(tenant, id)
        if keys is None:
            return False
        return bool(await self.history.server.command("HDEL", self._key(self._kind.name, tenant), keys.digits))

    async def under_way(self) -> list[tuple[str, str]]:
        """The tenants and ids of all for which there is work to do. Raises StoreUnavailable."""
        found, command = list[tuple[str, str]](), self.history.server.command
        for shard in self.history.keyspace.all_shards():
            for tenant in await command("SMEMBERS", shard.key_named(self._kind.works)):
                opened = await command("SMEMBERS", self._key(self._kind.works, tenant.decode()))
                found += [(tenant.decode(), self._kind.prefix + digits.decode()) for digits in opened]
        return found

    def _shard(self, tenant: str) -> int:
        return self.history.keyspace.place_of(tenant)

    def _keys(self, tenant: str, id: str) -> TurnKeys | None:
        """The keys of a record; None for an id that none of the tenant's can have."""
        digits = id.removeprefix(self._kind.prefix)
        known = id.startswith(self._kind.prefix) and len(digits) == 48 and set(digits) <= set("0123456789abcdef")
        if not known or shard_of(digits) != self._shard(tenant):
            return None
        return self.history.keyspace.keys(tenant, digits)

    def _key(self, name: str, tenant: str) -> Key:
        shard = self.history.keyspace.all_shards()[self._shard(tenant)]
        return shard.key_named(f"{name}:{checked_tenant(tenant)}")
