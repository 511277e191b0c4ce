"""Shares of memory: together no more than there is, in turn, and no large one keeps a small one waiting."""

import asyncio

import pytest

from store.archive.memory import Memory, Share
from store.errors import ArchiveUnavailable


async def held(memory: Memory, size: int, until: asyncio.Event, order: list[int] | None = None) -> int:
    """Hold so much until something happens; how often that was begun."""
    tries = 0

    async def work(share: Share) -> None:
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
    memory, until = Memory(1_000, wait_seconds=60, small_bytes=100), asyncio.Event()
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
    memory, until = Memory(1_000, wait_seconds=60, small_bytes=100), asyncio.Event()
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
    memory, until = Memory(1_000, wait_seconds=0.05, small_bytes=500), asyncio.Event()
    first = asyncio.ensure_future(held(memory, 1, until))
    await settle()
    with pytest.raises(ArchiveUnavailable, match="not free in time"):
        await held(memory, 1, until)
    until.set()
    await first
    assert await held(memory, 1, until) == 1


@pytest.mark.parametrize("turns", range(4))
async def test_who_is_cancelled_leaves_nothing_taken(turns: int) -> None:
    memory, until = Memory(1_000, wait_seconds=60, small_bytes=500), asyncio.Event()
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
