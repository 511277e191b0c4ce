"""Memory: how many bytes of an archive's values one process holds at once, whoever reads them.

A call gets a small share before it reads. One that turns out to need more drops it and begins again with a large one.
Small shares come out of one half and large ones out of the other, each in turn: so large values never keep small ones
waiting. Nobody waits for a share while it holds one, so no two wait for each other. No I/O.
"""

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from store.errors import ArchiveUnavailable

HELD_BYTES = 128 << 20
"""The bytes of all shares of a process together."""

SMALL_BYTES = 1 << 20
"""The share that every call begins with: a tree of some hundred turns."""

T = TypeVar("T")


class Crowded(Exception):
    """A call needs a share of `size` bytes, and has to begin again for that."""

    def __init__(self, size: int) -> None:
        super().__init__(f"it needs {size:,} bytes")
        self.size = size


class ArchiveMemory:
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

    async def with_share(self, work: Callable[["MemoryShare"], Awaitable[T]]) -> T:
        """Do some work that holds no more than its share. It is begun anew where it needs more, at most once for each
        doubling. Raises ArchiveUnavailable where that isn't free in time.
        """
        half, wanted, left = self._small, self._small_bytes, self._wait_seconds
        while True:
            began = monotonic()
            try:
                async with asyncio.timeout(max(0.0, left)):
                    size = await half.take(wanted)
            except TimeoutError:
                raise ArchiveUnavailable(f"others read so much that {wanted:,} bytes were not free in time") from None
            left -= monotonic() - began
            taken = half
            try:
                return await work(MemoryShare(size, is_all=size == self._large.size))
            except Crowded as crowded:
                half, wanted = self._large, max(crowded.size, 2 * size)
            finally:
                taken.give(size)


class MemoryShare:
    """The memory that a call may hold: `size` bytes. There is no larger one where it `is_all`."""

    def __init__(self, size: int, *, is_all: bool) -> None:
        self.size, self._is_all = size, is_all

    def hold(self, size: int) -> None:
        """Say that so many bytes will be held in all. Raises Crowded where they are more than the share."""
        if size > self.size and not self._is_all:
            raise Crowded(size)


class _Half:
    """Bytes that are given out in turn."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.held = 0
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

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
