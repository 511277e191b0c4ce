"""The layout record: the releases and settings that a store may be used with, kept in the store itself.

A process with fewer shards than the store doesn't find a part of it; one with another layout misreads keys; one with
other limits deletes turns that the others keep. So a process agrees with the record before it starts, or doesn't
start, and reads it again with each sweep and each probe. The first that starts writes the record. A process that finds
another layout there asks its store for nothing else from then on.

Never write to a store whose record contradicts this process.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from redis.exceptions import RedisError

from store.errors import LayoutMismatch, LimitsDiffer, OtherLayout, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import SECRET_BYTES, Keyspace
from store.redis import scripts
from store.redis.conditions import refuses_writes
from store.redis.connection import Server

LAYOUT = 5
"""The layout of a store. Another one is refused: raise it when a script reads a key in another way than the release
before, or writes a value that it can't read. From 0.1.0 on a raised one comes with a migration.
"""

TRIES = 5
"""How often the record is read where another process wrote to it meanwhile."""

UNREADABLE = -1
"""The layout of a record that has one which can't be read."""

_LIMIT = "limit:"
_BACK = "upgrade this process, or go back to a backup from before the upgrade (docs/upgrading.md)"


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a process: its number of shards, its release, its limits by the names of their settings, and whether
    they become those of the store where they differ.
    """

    shards: int
    release: str = "unknown"
    limits: Mapping[str, str] | None = None
    decides: bool = False


@dataclass(frozen=True, slots=True)
class StoreRecord:
    """The record of a store; `revision` counts how often it was written, the last time by `release`."""

    layout: int
    shards: int
    placed: int
    """How many shards it had at first."""
    limits: Mapping[str, str]
    release: str
    revision: str

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "StoreRecord":
        """A record from its fields. A number of shards that can't be read counts as missing, and is written anew; a
        layout that can't be read is another one.
        """
        limits = {name.removeprefix(_LIMIT): value for name, value in fields.items() if name.startswith(_LIMIT)}
        layout, shards, placed = (int(value) if (value := fields.get(name, "")).isdecimal() else 0 for name in _NUMBERS)
        layout = layout or (UNREADABLE if "layout" in fields else 0)
        return cls(layout, shards, placed, limits, fields.get("release", "unknown"), fields.get("revision", "0"))


_NUMBERS = ("layout", "shards", "placed")


def mismatch(terms: Terms, record: StoreRecord) -> LayoutMismatch | None:
    """The reason why a process must not use the store; None if it may. Pure."""
    if record.layout not in (0, LAYOUT):
        layout = "an unreadable layout" if record.layout == UNREADABLE else f"layout {record.layout}"
        there = f"the store has {layout}, written by {record.release}"
        return OtherLayout(f"{there}, and this release knows layout {LAYOUT}", _BACK)
    if terms.shards < record.shards:
        variable = _variable("shards")
        less = f"the store has {record.shards} shards, and {variable}={terms.shards}"
        lost = "responses in the others would be unknown, and jobs never begin"
        return LayoutMismatch(f"{less}: {lost}", f"set {variable}={record.shards}, or more; it never shrinks")
    limits = {} if terms.decides else terms.limits or {}
    differing = [(name, value) for name, value in limits.items() if record.limits.get(name, value) != value]
    if differing:
        here = ", ".join(f"{_variable(name)}={value}" for name, value in differing)
        there = ", ".join(f"{_variable(name)}={record.limits[name]}" for name, _ in differing)
        return LimitsDiffer(
            f"{here} here, and {there} for the others that use the store: the lower one deletes what others keep",
            f"set the same everywhere, or {_variable('change_limits')}=true to change it for the store",
        )
    return None


def changes(terms: Terms, record: StoreRecord) -> dict[str, str]:
    """The fields that a process that may use the store has to write to its record; mostly none. Pure."""
    own = {_LIMIT + name: value for name, value in (terms.limits or {}).items()}
    own |= {"layout": str(LAYOUT), "shards": str(max(terms.shards, record.shards))}
    own |= {"placed": str(record.placed or record.shards or terms.shards)}
    there = {_LIMIT + name: value for name, value in record.limits.items()}
    there |= {"layout": str(record.layout), "shards": str(record.shards), "placed": str(record.placed)}
    return {name: value for name, value in own.items() if there.get(name) != value}


class Layout:
    """The record of one store, as a process with these terms sees it. Its keyspace learns how much is placed."""

    def __init__(self, server: Server, keyspace: Keyspace, terms: Terms) -> None:
        self._server, self._keyspace = server, keyspace
        self._first = keyspace.all_shards()[0]
        self._terms = terms
        self._told = ""

    async def agree(self) -> None:
        """Write this process's changes to the record, if it may use the store.

        A server that takes no writes keeps the record that it has. Raises LayoutMismatch, StoreUnavailable.
        """
        for _ in range(TRIES):
            record = await self.read() or StoreRecord.of({})
            self._raise(mismatch(self._terms, record))
            wanted = changes(self._terms, record)
            if not wanted:
                return
            if await self._write(record, wanted):
                await self.check()
                return
        raise StoreUnavailable(f"the layout record was changed {TRIES} times while it was read")

    async def check(self, *, limits: bool = True) -> StoreRecord | None:
        """The record, as long as this process may use the store; None if there is none. It changes nothing.

        With `limits` they have to be the store's, too. Raises LayoutMismatch, StoreUnavailable.
        """
        record = await self.read()
        found = None if record is None else mismatch(self._terms, record)
        if limits or not isinstance(found, LimitsDiffer):
            self._raise(found)
        return record

    async def read(self) -> StoreRecord | None:
        async with self._server.operation(anyway=True) as operation:
            found = await operation.command("HGETALL", self._first.store)
        texts = iter(each.decode("utf-8", "replace") for each in found)
        record = StoreRecord.of(dict(zip(texts, texts, strict=True))) if found else None
        if record is not None and 0 < record.placed <= self._keyspace.shards:
            self._keyspace.placed = record.placed
        return record

    async def _write(self, record: StoreRecord, wanted: Mapping[str, str]) -> bool:
        """Whether the record was written, or can't be; False if somebody else wrote to it. Raises StoreUnavailable."""
        fields = " ".join(f"{name}={value}" for name, value in wanted.items())
        release, revision = self._terms.release, record.revision
        async with self._server.operation() as operation:
            try:
                (word,) = await scripts.agree(operation, self._first, revision=revision, fields=fields, release=release)
            except RedisError as refusal:
                if not refuses_writes(refusal):
                    raise
                return True
        return word == b"ok"

    def _raise(self, found: LayoutMismatch | None) -> None:
        told, self._told = self._told, str(found or "")
        self._server.health.barred = str(found) if isinstance(found, OtherLayout) else None
        if found is not None:
            if told != self._told:
                self._server.watcher.contradicted(found)
            raise found


def _variable(name: str) -> str:
    return f"HARMONIUM_{name.upper()}"


async def shared_secret(
    store: ConversationHistoryStore, *, entropy: Callable[[int], bytes] = secrets.token_bytes
) -> bytes:
    """The store's secret, SECRET_BYTES long, made for the first that asks; all others get the same one. Never log it.

    The service seals values that clients keep with it: they can't be opened once it is lost.

    `entropy(n)` returns the n random bytes of a new one. Raises StoreUnavailable, also where the stored value is no
    secret: fsck finds and repairs that.
    """
    async with store.server.operation() as operation:
        first = store.keyspace.all_shards()[0]
        word, found = await scripts.secret(operation, first, made=entropy(SECRET_BYTES))
    if word != b"ok":
        raise StoreUnavailable(f"the secret in the store has {len(found)} bytes and should have {SECRET_BYTES}")
    return found
