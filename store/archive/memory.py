"""Memory: how many bytes of an archive's values one process holds at once, whoever reads them.

A call gets a share before it reads, and another one in its place where it turns out to need more. Small shares come out
of one half and large ones out of the other, each in turn: so large values never keep small ones waiting. Nobody waits
for a share while it holds one, so no two wait for each other. A call that needs more than is free drops its share and
begins again with enough. No I/O.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import TypeVar

from store.errors import ArchiveUnavailable

HELD_BYTES = 128 << 20
"""The bytes of all shares of a process together."""

SMALL_BYTES = 1 << 20
"""The share that every call begins with: a tree of some hundred turns."""

T = TypeVar("T")


class Crowded(Exception):
    """A call needs a share of another share, of `size` bytes, and has to begin again for that."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size:,} bytes are not free")
        self.size = size


class Memory:
    """Shares of so many bytes together. A call that needs more than a half gets the whole half, and is alone there."""

    def __init__(self, held_bytes: int = HELD_BYTES, wait_seconds: float = 5.0, small_bytes: int = SMALL_BYTES) -> None:
        """A call waits `wait_seconds` at most."""
        self._small, self._large = _Half(held_bytes // 2), _Half(held_bytes - held_bytes // 2)
        self._wait_seconds = wait_seconds
        self._small_bytes = min(small_bytes, self._small.size)

    @property
    def held(self) -> int:
        """The bytes of all shares now."""
        return self._small.held + self._large.held

    async def with_share(self, work: Callable[["Share"], Awaitable[T]]) -> T:
        """Do some work that holds no more than its share. It is begun anew where it needs more than is free, at most
        once for each doubling. Raises ArchiveUnavailable where that isn't free in time.
        """
        half, wanted, left = self._small, self._small_bytes, self._wait_seconds
        while True:
            began = monotonic()
            async with self._share(half, wanted, left) as share:
                left -= monotonic() - began
                try:
                    return await work(share)
                except Crowded as crowded:
                    half, wanted = self._large, max(crowded.size, 2 * share.size)

    @asynccontextmanager
    async def _share(self, half: "_Half", wanted: int, seconds: float) -> AsyncGenerator["Share"]:
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                share = Share(half, await half.take(wanted), self._large)
        except TimeoutError:
            raise ArchiveUnavailable(f"others read so much that {wanted:,} bytes were not free in time") from None
        try:
            yield share
        finally:
            share.give_back()


class Share:
    """The memory that a call may hold: `size` bytes."""

    def __init__(self, half: "_Half", size: int, large: "_Half") -> None:
        self._half, self.size, self._large = half, size, large

    def hold(self, size: int) -> None:
        """Say that so many bytes will be held in all. Raises Crowded where they are more than the share and no more is
        free at once.
        """
        if size <= self.size or (self._half is self._large and self.size == self._large.size):
            return
        more = min(size, self._large.size) - (self.size if self._half is self._large else 0)
        if not self._large.take_now(more):
            raise Crowded(size)
        if self._half is self._large:
            self.size += more
        else:
            self._half.give(self.size)
            self._half, self.size = self._large, more

    def give_back(self) -> None:
        """End it."""
        self._half.give(self.size)
        self.size = 0


class _Half:
    """Bytes that are given out in turn."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    def take_now(self, wanted: int) -> bool:
        """Take some, unless others wait for them or they aren't free."""
        if self._turn.locked() or self.held + wanted > self.size:
            return False
        self.held += wanted
        return True

    async def take(self, wanted: int) -> int:
        """Wait for some, or for all where that is less; how many they are."""
        wanted = min(wanted, self.size)
        async with self._turn:
            while self.held + wanted > self.size:
                self._freed.clear()
                await self._freed.wait()
            self.held += wanted
        return wanted

    def give(self, size: int) -> None:
        """Give some back."""
        self.held -= size
        self._freed.set()
