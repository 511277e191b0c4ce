"""The registry: records by their names, lists of them in the order in which they were added, and the audit log.

A change names the records that it was computed from. If these still stand, one script makes all of the change with its
entry in the audit log, and tells the listeners; else it changes nothing, and the caller reads again. The registry is
in the first shard: it is small, and its readers cache most of it.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, ParamSpec, TypeVar

import msgspec

from store.errors import RegistryFull, RegistryMoved
from store.history.history import ConversationHistoryStore
from store.keys import ShardKeys
from store.redis import scripts

T = TypeVar("T")
P = ParamSpec("P")

ADMINISTRATORS = "@administrators"
"""The administrators' share of the audit log, with room of its own (lua/change_registry.lua)."""

STRANGERS = "@strangers"
"""The share of callers that are no tenant."""

TRIES = 8
MOST_A_PAGE = 100


class Change(NamedTuple):
    """A record, by its name, that becomes `after` if it is `before`; empty where there is none."""

    name: str
    before: bytes
    after: bytes


class RecordKey(NamedTuple):
    """A name in a list: added where the list has fewer than `most`, taken out with `most` 0."""

    list: str
    name: str
    most: int


class RegistryEntry(NamedTuple):
    """An entry of the audit log: the µs when it was made, which no other entry has, and the record as it was given."""

    us: int
    record: bytes


class Registry:
    """The registry of a store."""

    def __init__(self, history: ConversationHistoryStore, *, most_entries: int = 100_000) -> None:
        """The audit log keeps `most_entries` entries: one half of administrators, one of all others."""
        self._history = history
        self._most_entries = most_entries // 2

    @property
    def _shard(self) -> ShardKeys:
        return self._history.keyspace.all_shards()[0]

    @property
    def news(self) -> str:
        """The channel that says which project or key was changed, by its name."""
        return self._shard.registry_news

    async def read(self, *names: str) -> list[bytes]:
        """The records of these names, empty where there is none. Raises StoreUnavailable."""
        found: list[bytes | None] = await self._history.server.command("HMGET", self._shard.registry, *names)
        return [each or b"" for each in found]

    async def page(
        self, name: str, *, after: str | None = None, limit: int = MOST_A_PAGE, ascending: bool = True
    ) -> list[str] | None:
        """At most `limit` names of a list, behind the name `after`, in the order in which they were added, or the
        newest first; None where the list has no such name. Raises StoreUnavailable.
        """
        place = self._shard.key_named(f"registry:{name}")
        first, last = ("-inf", "+inf") if ascending else ("+inf", "-inf")
        order = ("BYSCORE",) if ascending else ("BYSCORE", "REV")
        async with self._history.server.operation() as operation:
            if after is not None:
                if (score := await operation.command("ZSCORE", place, after)) is None:
                    return None
                first = b"(" + score
            names = await operation.command("ZRANGE", place, first, last, *order, "LIMIT", 0, limit)
        return [name.decode() for name in names]

    async def change(
        self,
        changes: Sequence[Change],
        *,
        places: Sequence[RecordKey] = (),
        entries: Sequence[bytes] = (),
        share: str = ADMINISTRATORS,
        tell: str = "",
    ) -> None:
        """Change records and lists, add `entries` to a share of the audit log, and send `tell` to the listeners.

        When it returns, the change is as safe as a stored turn. Raises RegistryMoved where a record has changed since,
        RegistryFull, StoreUnconfirmed, StoreUnavailable.
        """
        word, *details = await self._history.server.run(
            scripts.change_registry,
            self._shard,
            changes=msgspec.json.encode([tuple(map(_text, each)) for each in changes]),
            places=msgspec.json.encode(places),
            mark=secrets.token_hex(16),
            entries=msgspec.json.encode([_text(each) for each in entries]),
            share=share,
            most_entries=self._most_entries,
            tell=tell,
        )
        if word == b"moved":
            raise RegistryMoved(details[0].decode())
        if word == b"full":
            raise RegistryFull(details[0].decode())
        await self._history.confirmer.prove(self._shard)

    async def note(self, share: str, entry: bytes) -> None:
        """Add an entry to the audit log, in the share of a tenant, of ADMINISTRATORS or of STRANGERS. Where there is no
        room, the oldest of the share with the most entries goes. Raises StoreUnavailable.
        """
        await self.change((), entries=[entry], share=share)

    async def entries(
        self, *, first: int = 0, last: int | None = None, limit: int = MOST_A_PAGE, ascending: bool = False
    ) -> list[RegistryEntry]:
        """At most `limit` entries of the audit log of all shares, of those from the µs `first` to the µs `last`, the
        newest first, or the oldest. Raises StoreUnavailable.
        """
        newest = "+inf" if last is None else last
        bounds = (first, newest, "BYSCORE") if ascending else (newest, first, "BYSCORE", "REV")
        found: list[bytes] = await self._history.server.command(
            "ZRANGE", self._shard.audit_entries, *bounds, "LIMIT", 0, limit
        )
        parts = [each.partition(b" ") for each in found]
        return [RegistryEntry(int(us), record) for us, _, record in parts]

    async def used(self, names: dict[str, int]) -> None:
        """Note when keys were last used, by their names, in seconds; skips deleted keys. Raises StoreUnavailable."""
        await self._history.server.run(scripts.note_used, self._shard, used=msgspec.json.encode(names))

    async def last_used(self, names: Sequence[str]) -> list[int | None]:
        """The times when keys were last used, in seconds; None for those that never were. Raises StoreUnavailable."""
        if not names:
            return []
        found: list[bytes | None] = await self._history.server.command("HMGET", self._shard.registry_used, *names)
        return [None if each is None else int(each) for each in found]


def _text(part: str | bytes) -> str:
    """A part as text: Lua reads JSON, which has no bytes, and records are JSON themselves."""
    return part if isinstance(part, str) else part.decode()


def repeat(change: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """A change that is called again where another came in between; after TRIES times it raises RegistryMoved."""

    async def again(*given: P.args, **named: P.kwargs) -> T:
        for _ in range(TRIES - 1):
            with suppress(RegistryMoved):
                return await change(*given, **named)
        return await change(*given, **named)

    return again
