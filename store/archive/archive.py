"""The archive as its callers have it: five verbs over any backend, each within its bounds.

A call that fails may have been carried out. A `put` that is tried again after a lost reply finds its own value, and
says that it clashed. So a clash is no error: the caller reads the stored value and goes on from there.

An archive says its format, and a later one is neither read nor written: its keys may mean something else.

A probe proves that a store is fit for an archive. There are servers that speak S3 and ignore conditions, without a
word. On such a server two archivers overwrite each other, and erased turns come back.
"""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from math import inf
from time import monotonic
from typing import TypeVar

from store.archive.memory import ArchiveMemory
from store.archive.port import (
    MOST_DELETED,
    MOST_LISTED,
    MOST_VALUE_BYTES,
    ArchiveEntry,
    Backend,
    Bounds,
    Stored,
    checked_key,
    checked_prefix,
)
from store.errors import ArchiveRefused, ArchiveUnavailable, ArchiveUnfit, NewerFormat
from store.watcher import UNWATCHED, Watcher

FORMAT = 1
FORMAT_KEY = "v1/store/format"
"""Where an archive says its format; one that doesn't has the first."""

FORMAT_SECONDS = 60.0
"""How long it is taken to have the same: a later release may have come."""

PAUSES = (0.05, 0.2)
"""How many seconds pass before each further try."""

BROKEN_AFTER = 5
"""After how many failures in a row an archive is taken to be away."""

PROBE_SECONDS = 1.0
"""How often one call then looks whether it is back; the others fail at once."""

PROBE_FOLDER = "v1/probe"
"""The folder in which a probe puts its value, under a name of its own, and deletes it."""

T = TypeVar("T")


class ArchiveListener:
    """Hears of what changes in an archive, once it has; here nothing comes of it. Who changes a tree says so before it
    forgets that it had to, so that a process that dies in between is followed by one that says it again.
    """

    async def tree_changed(self, tenant: str, digits: str) -> None:
        """Something of the tree to which some digits lead was added or deleted. Raises ArchiveUnavailable."""

    async def tree_goes(self, tenant: str, digits: str) -> None:
        """The tree to which some digits lead is about to be deleted for its age; a `tree_changed` follows."""

    async def tenant_erased(self, tenant: str, until: int) -> None:
        """All that a tenant had until then was erased, in µs since 1970. For each tree with later turns, and for each
        that the archive still had, a `tree_changed` follows.
        """

    async def is_stale(self, tenant: str, digits: str) -> bool:
        """Whether what was made of a tree is not the tree's any more. Raises ArchiveDamaged, NewerFormat."""
        return False

    async def strays(self) -> AsyncGenerator[tuple[str, str]]:
        """The tenants and digits of trees of which something was made, and that are gone. Raises ArchiveUnavailable."""
        for none in tuple[tuple[str, str]]():
            yield none

    async def unread(self) -> Sequence[str]:
        """The shards of whose trees nothing was made, as they could not be read. Raises ArchiveUnavailable."""
        return ()

    async def close(self) -> None:
        """Give back what it holds."""


class Archive:
    """Values by key. All verbs raise ArchiveUnavailable, NewerFormat where all of it has a later format, and ValueError
    for arguments out of bounds.
    """

    def __init__(
        self,
        backend: Backend,
        bounds: Bounds | None = None,
        watcher: Watcher = UNWATCHED,
        *,
        tells_format: bool = False,
    ) -> None:
        """`tells_format`: it has FORMAT_KEY, or is to have it."""
        self._backend, self._watcher = backend, watcher
        self._known_until = 0.0 if tells_format else inf
        self._bounds = bounds or Bounds()
        self._places = asyncio.Semaphore(self._bounds.concurrency)
        self._failures = 0
        self._next_probe = 0.0
        self.memory = ArchiveMemory(self._bounds.held_bytes, self._bounds.total_seconds)
        """The memory that all readers of large values share."""
        self.listener = ArchiveListener()

    async def get(self, key: str) -> Stored | None:
        """The stored value with its etag; None where there is none."""
        checked_key(key)
        found = await self._carried_out("get", lambda: self._backend.get(key))
        if found is not None:
            self._watcher.archive_moved("read", len(found.value))
        return found

    async def put(self, key: str, value: bytes, *, only_if: str | None) -> str | None:
        """Store a value in the place of the one with the etag `only_if`, or where nothing is if that is None.

        Returns its etag, or None for a clash: something else is there, which may be this very value.
        """
        checked_key(key)
        if len(value) > MOST_VALUE_BYTES:
            raise ValueError(f"a value of {len(value):,} bytes is larger than {MOST_VALUE_BYTES:,}")
        etag = await self._carried_out("put", lambda: self._backend.put(key, value, only_if))
        if etag is not None:
            self._watcher.archive_moved("write", len(value))
        return etag

    async def delete(self, *keys: str) -> None:
        """Delete up to MOST_DELETED keys, as far as they are there, whatever their values.

        There is no condition, as object stores have none for it. So delete only what nobody replaces any more, such as
        a marker that says that all is gone.
        """
        if len(keys) > MOST_DELETED:
            raise ValueError(f"{len(keys):,} keys are more than the {MOST_DELETED:,} that are deleted at once")
        checked = [checked_key(key) for key in keys]
        if checked:
            await self._carried_out("delete", lambda: self._backend.delete(checked))

    async def list(self, prefix: str, *, after: str = "", limit: int = MOST_LISTED) -> Sequence[ArchiveEntry]:
        """The first `limit` keys below a folder (`v1/`, or all for an empty one) that come after another key, in the
        order of their ASCII codes. Fewer than that are the last ones.
        """
        checked_prefix(prefix)
        if not 1 <= limit <= MOST_LISTED:
            raise ValueError(f"a page has 1 to {MOST_LISTED:,} keys, not {limit:,}")
        return await self._carried_out("list", lambda: self._backend.list(prefix, after, limit))

    async def probe(self) -> Sequence[str]:
        """Prove that the store keeps its promises, and return its warnings for the operator. Raises ArchiveUnfit."""
        await _prove(self)
        return self._backend.warnings()

    async def close(self) -> None:
        """Give back what is held. Calls under way may fail."""
        await self.listener.close()
        await self._backend.close()

    async def _carried_out(self, verb: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Carry a call out, unless the archive was away a moment ago."""
        if self._failures >= BROKEN_AFTER:
            now = monotonic()
            if now < self._next_probe:
                raise ArchiveUnavailable(f"its last {self._failures} calls failed, the last one a moment ago")
            self._next_probe = now + PROBE_SECONDS
        try:
            done = await self._within_bounds(verb, attempt)
        except ArchiveUnavailable as error:
            self._failures += not isinstance(error, ArchiveRefused)  # it answers
            self._watcher.archive_failed(error)
            raise
        self._failures = 0
        return done

    async def _within_bounds(self, verb: str, attempt: Callable[[], Awaitable[T]]) -> T:
        bounds, last = self._bounds, ArchiveUnavailable("no call before it has ended; there may be too many")
        try:
            async with asyncio.timeout(bounds.total_seconds), self._places:
                for pause in (*PAUSES, None):
                    try:
                        async with asyncio.timeout(bounds.request_seconds):
                            await self._check_format()
                            return await attempt()
                    except ArchiveRefused:
                        raise
                    except TimeoutError:
                        last = ArchiveUnavailable(f"it did not answer within {bounds.request_seconds:g} s")
                    except ArchiveUnavailable as error:
                        last = error
                    if pause is not None:
                        await asyncio.sleep(pause)
        except TimeoutError:
            raise ArchiveUnavailable(f"{verb} took longer than {bounds.total_seconds:g} s: {last.reason}") from last
        raise last

    async def _check_format(self) -> None:
        now = monotonic()
        if now >= self._known_until:
            stored = await self._backend.get(FORMAT_KEY)
            version = 1 if stored is None else int(stored.value) if stored.value.isdigit() else FORMAT + 1
            if version > FORMAT:
                raise NewerFormat(version)
            self._known_until = now + FORMAT_SECONDS


async def _prove(archive: Archive) -> None:
    """Create a value twice, and replace it with a stale etag. Raises ArchiveUnfit where the store does either, and
    ArchiveUnavailable.
    """
    key = f"{PROBE_FOLDER}/{secrets.token_hex(16)}"
    fault = await _fault(archive, key)
    await archive.delete(key)
    if fault is None and await archive.get(key) is not None:
        fault = "it still tells what was deleted"
    if fault is not None:
        raise ArchiveUnfit(fault)


async def _fault(archive: Archive, key: str) -> str | None:
    """The fault of the store, None where there is none. A clash with the probe's own write is none."""
    if await archive.get(key) is not None:
        return "it has a value where none was ever stored"
    await archive.put(key, b"first", only_if=None)
    first = await archive.get(key)
    if first is None or first.value != b"first":
        return "it doesn't tell what was written"
    if await archive.put(key, b"created twice", only_if=None) is not None:
        return "it creates what is there already (it ignores If-None-Match)"
    await archive.put(key, b"second", only_if=first.etag)
    second = await archive.get(key)
    if second is None or second.value != b"second":
        return "it doesn't replace a value by its etag"
    if await archive.put(key, b"replaced twice", only_if=first.etag) is not None:
        return "it replaces a value by a stale etag (it ignores If-Match)"
    if await archive.get(key) != second:
        return "a write that it refused has changed something"
    return None
