"""The layout record: with which releases and settings a store may be used, kept in the store itself.

A process with fewer shards than the store has takes a part of it for unknown; one that knows an older layout takes keys
for something else than they are; one with other limits deletes what the others keep. So whoever starts agrees with the
record first, or doesn't start, and whoever runs looks at it again with each sweep and each probe. A store without a
record, as releases before it leave one, gets it from the first that starts, if nothing in it speaks against that.

A later layout is agreed upon before anybody writes by it, as an older release can't read that: a store that was never
used begins with the latest, and any other one keeps its own until somebody who knows that no older release is left says
that it be raised. What is written then follows the record, and each process hears of it by its next look.

Never write to a store whose record contradicts this process.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from redis.exceptions import RedisError

from store.errors import LayoutMismatch, LimitsDiffer, StoreUnavailable
from store.keys import MAX_SHARDS, Keyspace
from store.redis import scripts
from store.redis.conditions import refuses_writes
from store.redis.connection import Operation, Server

LAYOUT = 3
"""The latest layout that this release knows. Raise it when a script takes a key for something else than the release
before, or when one writes what that can't read.

1  what releases up to 0.1 know
2  responses are compressed with a dictionary (store/codec.py)
3  what an archive lacks of turns is noted, and those are not evicted (lua/unarchived.lua): a release before that notes
   nothing and evicts them
"""

ARCHIVE_LAYOUT = 3
"""The layout that a store with an archive must have."""

FIRST = 1
"""The layout of a store that was used before anybody raised it."""

TRIES = 5
"""How often the record is read again because somebody else wrote to it meanwhile."""

_LIMIT = "limit:"
"""What the field of a limit begins with."""

_BACK = "upgrade this process, or go back to a backup from before the upgrade (docs/operating.md)"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a process brings along: its number of shards, which release it is, its limits by the names of their
    settings, and whether they become those of the store where they differ; the latest `layout` that it knows, the one
    that it raises the store to, and the one that what it is set to do `needs` at least.
    """

    shards: int
    release: str = "unknown"
    limits: Mapping[str, str] | None = None
    decides: bool = False
    layout: int = LAYOUT
    raises_to: int = FIRST
    needs: int = FIRST


@dataclass(frozen=True, slots=True)
class Record:
    """What the store says of itself; `revision` counts how often it was written, the last time by `release`."""

    layout: int
    shards: int
    limits: Mapping[str, str]
    release: str
    revision: str

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "Record":
        """A record from its fields. What is no number there counts as missing, and is written anew."""
        limits = {name.removeprefix(_LIMIT): value for name, value in fields.items() if name.startswith(_LIMIT)}
        layout, shards = (int(value) if (value := fields.get(name, "")).isdecimal() else 0 for name in _NUMBERS)
        return cls(layout, shards, limits, fields.get("release", "unknown"), fields.get("revision", "0"))


_NUMBERS = ("layout", "shards")


def mismatch(terms: Terms, record: Record, *, unused: bool = False) -> LayoutMismatch | None:
    """Why a process must not use the store, which was never used if it is `unused`; None if it may. Pure."""
    if terms.layout < record.layout:
        known = f"the store has layout {record.layout}, written by {record.release}"
        return LayoutMismatch(f"{known}, and this release knows layout {terms.layout} at most", _BACK)
    if terms.layout < terms.raises_to:
        wanted = f"{_variable('store_layout')}={terms.raises_to}, and this release knows layout {terms.layout} at most"
        return LayoutMismatch(wanted, f"set {_variable('store_layout')}={terms.layout}, or upgrade this process")
    if _written_by(terms, record, unused) < terms.needs:
        has = record.layout or FIRST
        lacks = f"what this process is set to do needs layout {terms.needs}, and the store has layout {has}"
        once = "once no older release uses the store, as none can from then on (docs/operating.md)"
        return LayoutMismatch(lacks, f"set {_variable('store_layout')}={terms.needs} {once}")
    if terms.shards < record.shards:
        return _too_few(terms.shards, f"the store has {record.shards} shards", record.shards)
    differing = [] if terms.decides else list(_differing(terms, record))
    if differing:
        here = ", ".join(f"{_variable(name)}={value}" for name, value in differing)
        there = ", ".join(f"{_variable(name)}={record.limits[name]}" for name, _ in differing)
        return LimitsDiffer(
            f"{here} here, and {there} for the others that use the store: the lower one deletes what others keep",
            f"set the same everywhere, or {_variable('change_limits')}=true to change it for the store",
        )
    return None


def changes(terms: Terms, record: Record, *, unused: bool = False) -> dict[str, str]:
    """What a process that may use the store has to write to its record; nothing, most of the time. Pure.

    `unused` is whether the store was never used, so that its layout is the latest.
    """
    own = {_LIMIT + name: value for name, value in (terms.limits or {}).items()}
    own |= {"layout": str(_written_by(terms, record, unused)), "shards": str(max(terms.shards, record.shards))}
    there = {_LIMIT + name: value for name, value in record.limits.items()}
    there |= {"layout": str(record.layout), "shards": str(record.shards)}
    return {name: value for name, value in own.items() if there.get(name) != value}


class Layout:
    """The record of one store, as a process with these terms sees it."""

    def __init__(self, server: Server, prefix: str, terms: Terms) -> None:
        """Nothing is read yet."""
        self._server = server
        self._shards = Keyspace(prefix, MAX_SHARDS).all_shards()
        self._terms = terms
        self._told = ""
        self._agreed = FIRST
        self.contradicted: Callable[[LayoutMismatch], None] = lambda mismatch: None
        """Called once for each mismatch that `agree` or `check` newly raises."""
        self.recorded: Callable[[int], None] = lambda layout: None
        """Called with the layout that the store is to be written by, each time that `agree` or `check` has looked."""

    async def agree(self) -> None:
        """Write to the record what this process changes of it, if it may use the store.

        A server that takes no writes keeps the record that it has. Raises LayoutMismatch, StoreUnavailable.
        """
        for _ in range(TRIES):
            record, unused, terms = await self.read(), False, self._terms
            if record is None:
                self._raise(await self._unrecorded())
                record, unused = Record.of({}), await self._last_used(range(self._terms.shards)) is None
                terms = replace(terms, raises_to=max(terms.raises_to, self._agreed))  # the server has lost it
            self._raise(mismatch(terms, record, unused=unused))
            wanted = changes(terms, record, unused=unused)
            if not wanted:
                self._note(record.layout)
                return
            if await self._written(record, wanted):
                await self.check()
                return
        raise StoreUnavailable(f"the layout record was changed {TRIES} times while it was read")

    async def check(self, *, limits: bool = True) -> Record | None:
        """The record, as long as this process may use the store; None if there is none. It changes nothing.

        With `limits` they have to be the store's, too. Raises LayoutMismatch, StoreUnavailable.
        """
        record = await self.read()
        if record is None:
            self.recorded(FIRST)
        else:
            found = mismatch(self._terms, record)
            if limits or not isinstance(found, LimitsDiffer):
                self._raise(found)
            self._note(record.layout)
        return record

    async def examine(self) -> Record | None:
        """As `check`; of a store without a record it looks whether it has more shards. Raises the same."""
        record = await self.check()
        if record is None:
            self._raise(await self._unrecorded())
        return record

    async def read(self) -> Record | None:
        """The record, if there is one. Raises StoreUnavailable."""
        async with self._server.operation() as operation:
            found = await operation.command("HGETALL", self._shards[0].store)
        texts = iter(each.decode("utf-8", "replace") for each in found)
        return Record.of(dict(zip(texts, texts, strict=True))) if found else None

    async def _unrecorded(self) -> LayoutMismatch | None:
        """What speaks against recording these terms: a shard that they lack has had turns."""
        number = await self._last_used(range(self._terms.shards, MAX_SHARDS))
        if number is None:
            return None
        return _too_few(self._terms.shards, f"the store has turns in shard {number:02x}", number + 1)

    async def _last_used(self, shards: Sequence[int]) -> int | None:
        """The last of some shards that has had turns, so it has a clock.

        There can be 256 shards, so this asks as often, once in the life of a store; each question has its own time.
        """
        for number in reversed(shards):
            async with self._server.operation() as operation:
                if await operation.command("EXISTS", self._shards[number].clock):
                    return number
        return None

    async def _written(self, record: Record, wanted: Mapping[str, str]) -> bool:
        """Whether the record was written, or can't be; False if somebody else wrote to it. Raises StoreUnavailable."""
        async with self._server.operation() as operation:
            try:
                word = await self._write(operation, record, wanted)
            except RedisError as refusal:
                if not refuses_writes(refusal):
                    raise
                return True
        return word == b"ok"

    async def _write(self, operation: Operation, record: Record, wanted: Mapping[str, str]) -> bytes:
        fields = " ".join(f"{name}={value}" for name, value in wanted.items())
        (word,) = await scripts.agree(
            operation, self._shards[0], revision=record.revision, fields=fields, release=self._terms.release
        )
        return word

    def _note(self, layout: int) -> None:
        """The store is to be written by this layout."""
        self._agreed = layout
        self.recorded(layout)

    def _raise(self, found: LayoutMismatch | None) -> None:
        """Raise it, if there is one, and tell of it once."""
        told, self._told = self._told, str(found or "")
        if found is not None:
            if told != self._told:
                self.contradicted(found)
            raise found


def _written_by(terms: Terms, record: Record, unused: bool) -> int:
    """The layout that the store has once a process with these terms has agreed."""
    return max(record.layout, terms.layout if unused else terms.raises_to)


def _too_few(own: int, known: str, needed: int) -> LayoutMismatch:
    reason = f"{known}, and {_variable('shards')}={own}: responses in the others would be unknown, and jobs never begin"
    return LayoutMismatch(reason, f"set {_variable('shards')}={needed}, or more; it never shrinks")


def _differing(terms: Terms, record: Record) -> Iterator[tuple[str, str]]:
    """The limits that both know and that differ, with the process's values."""
    for name, value in (terms.limits or {}).items():
        if record.limits.get(name, value) != value:
            yield name, value


def _variable(name: str) -> str:
    """The setting's name, for messages."""
    return f"HARMONIUM_{name.upper()}"
