"""How long a call takes, how often it is tried, and how much memory all together have for it."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from store.archive.archive import PAUSES, Archive
from store.archive.memory import ArchiveMemory, MemoryShare
from store.archive.port import ArchiveEntry, Bounds, Stored
from store.errors import ArchiveRefused, ArchiveUnavailable

QUICK = Bounds(total_seconds=5.0, request_seconds=0.1, concurrency=1)


class Scripted:
    """Answers each get by the next of some steps, and the last one again and again."""

    def __init__(self, *steps: Callable[[], Stored | None] | float) -> None:
        self.steps = list(steps)
        self.asked = 0

    async def get(self, key: str) -> Stored | None:
        step = self.steps[min(self.asked, len(self.steps) - 1)]
        self.asked += 1
        if isinstance(step, float):
            await asyncio.sleep(step)
            return None
        return step()

    async def put(self, key: str, value: bytes, only_if: str | None) -> str | None: ...
    async def delete(self, keys: Sequence[str]) -> None: ...
    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        return ()

    def warnings(self) -> Sequence[str]:
        return ()

    async def close(self) -> None: ...


def away() -> Stored | None:
    raise ArchiveUnavailable("nobody is there")


def refused() -> Stored | None:
    raise ArchiveRefused("the disk is full")


def there() -> Stored | None:
    return Stored(b"x", "1")


async def test_what_fails_is_tried_again_a_few_times() -> None:
    backend = Scripted(away, away, there)
    assert await Archive(backend).get("k") == (b"x", "1")
    backend = Scripted(away)
    with pytest.raises(ArchiveUnavailable, match="nobody is there"):
        await Archive(backend).get("k")
    assert backend.asked == 1 + len(PAUSES)


async def test_what_is_refused_is_not_tried_again() -> None:
    backend = Scripted(refused)
    with pytest.raises(ArchiveRefused, match="the disk is full"):
        await Archive(backend).get("k")
    assert backend.asked == 1


async def test_a_try_that_takes_too_long_is_followed_by_another() -> None:
    assert await Archive(Scripted(60.0, there), QUICK).get("k") == (b"x", "1")


async def test_all_tries_together_end_within_the_time_for_a_call() -> None:
    patient = Bounds(total_seconds=0.2, request_seconds=60.0)
    with pytest.raises(ArchiveUnavailable, match=r"get took longer than 0\.2 s"):
        async with asyncio.timeout(20.0):
            await Archive(Scripted(60.0), patient).get("k")
    with pytest.raises(ArchiveUnavailable, match=r"did not answer within 0\.1 s"):
        await Archive(Scripted(60.0), QUICK).get("k")


class Lingering(Scripted):
    """Gives its place back only once it is let go, however long ago its call ended."""

    def __init__(self) -> None:
        super().__init__(there)
        self.let_go = asyncio.Event()

    async def get(self, key: str) -> Stored | None:
        try:
            await self.let_go.wait()
        finally:
            await self.let_go.wait()
        return await super().get(key)


async def test_a_call_that_never_has_its_turn_says_so() -> None:
    backend = Lingering()
    archive = Archive(backend, Bounds(total_seconds=0.2, concurrency=1))
    first = asyncio.ensure_future(archive.get("k"))
    await asyncio.sleep(0)  # it has the only place now
    with pytest.raises(ArchiveUnavailable, match="there may be too many"):
        await archive.get("k")
    backend.let_go.set()
    with pytest.raises(ArchiveUnavailable):
        await first
    assert await archive.get("k") == (b"x", "1")


async def held(memory: ArchiveMemory, size: int, until: asyncio.Event, order: list[int] | None = None) -> int:
    """Hold so much until something happens; how often that was begun."""
    tries = 0

    async def work(share: MemoryShare) -> None:
        nonlocal tries
        tries += 1
        share.hold(size)
        if order is not None:
            order.append(size)
        await until.wait()

    await memory.with_share(work)
    return tries


async def settle() -> None:
    """Have all tasks go as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_all_shares_together_are_no_more_than_there_is() -> None:
    memory, until = ArchiveMemory(1_000, wait_seconds=60, small_bytes=100), asyncio.Event()
    tasks = [asyncio.ensure_future(held(memory, size, until)) for size in (10, 300, 100, 300, 5_000, 20, 99, 250, 1)]
    most = 0
    for _ in range(200):
        await settle()
        most = max(most, memory.held)
        until.set()
        await settle()
        until.clear()
    until.set()
    await asyncio.gather(*tasks)
    assert 500 < most <= 1_000
    assert memory.held == 0


async def test_large_ones_never_keep_small_ones_waiting_and_a_larger_one_has_its_turn() -> None:
    memory, until = ArchiveMemory(1_000, wait_seconds=60, small_bytes=100), asyncio.Event()
    order: list[int] = []
    large = [asyncio.ensure_future(held(memory, size, until, order)) for size in (300, 9_000, 200, 400)]
    await settle()
    small = [asyncio.ensure_future(held(memory, 50, until, order)) for _ in range(5)]
    await settle()
    assert order == [300, *[50] * 5]
    until.set()
    await asyncio.gather(*large, *small)
    assert order == [300, *[50] * 5, 9_000, 200, 400]


async def test_nobody_waits_longer_than_the_archive_may_take() -> None:
    memory, until = ArchiveMemory(1_000, wait_seconds=0.05, small_bytes=500), asyncio.Event()
    first = asyncio.ensure_future(held(memory, 1, until))
    await settle()
    with pytest.raises(ArchiveUnavailable, match="not free in time"):
        await held(memory, 1, until)
    until.set()
    await first
    assert await held(memory, 1, until) == 1


@pytest.mark.parametrize("turns", range(4))
async def test_who_is_cancelled_leaves_nothing_taken(turns: int) -> None:
    memory, until = ArchiveMemory(1_000, wait_seconds=60, small_bytes=500), asyncio.Event()
    tasks = [asyncio.ensure_future(held(memory, 1, until)) for _ in range(3)]
    await settle()
    until.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert memory.held == 0
    assert await held(memory, 1, until) == 1
