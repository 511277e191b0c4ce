"""Pacing: of several tenants one that asks for more than the loop can do waits, and no other one does."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.pacing import BRIEF_SECONDS, LATELY_SECONDS, LEAST, MOST_ROUNDS, Pacing, Work
from tests.support.waiting import until

SECONDS = 10.0


class Clock:
    """A time that tests choose."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def busy() -> AsyncIterator[None]:
    """Every round of the loop takes far longer than one should, until the end of the block."""

    async def burn() -> None:
        while True:
            time.sleep(4 * BRIEF_SECONDS)  # noqa: ASYNC251 - which is the point
            await asyncio.sleep(0)

    burning = asyncio.create_task(burn())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        burning.cancel()


async def begun(pacing: Pacing, tenant: str, count: int) -> list[Work]:
    """So many that begin, which nothing may hinder."""
    async with asyncio.timeout(SECONDS):
        return [await pacing.begin(tenant) for _ in range(count)]


async def passes_rounds(task: asyncio.Task[Work]) -> None:
    """Some rounds of the loop, after which it still waits."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()


async def test_a_tenant_that_is_alone_never_waits() -> None:
    async with busy():
        await begun(Pacing(), "acme", 100)


async def test_of_several_one_waits_for_more_while_the_loop_is_busy_and_no_other_one() -> None:
    pacing = Pacing()
    await begun(pacing, "globex", 1)
    async with busy():
        held = await begun(pacing, "acme", LEAST)
        waiting = asyncio.create_task(pacing.begin("acme"))
        await passes_rounds(waiting)
        await begun(pacing, "globex", LEAST - 1)
        await begun(pacing, "initech", LEAST)
        held[0].end()
        await until(waiting.done, SECONDS)


async def test_on_a_quick_loop_nobody_waits() -> None:
    pacing = Pacing()
    await begun(pacing, "globex", 1)
    await begun(pacing, "acme", 100)


async def test_they_begin_in_the_order_in_which_they_came() -> None:
    pacing, order = Pacing(), list[int]()
    await begun(pacing, "globex", 1)

    async def begin(number: int) -> None:
        await pacing.begin("acme")
        order.append(number)

    async with busy():
        await begun(pacing, "acme", LEAST)
        tasks = [asyncio.create_task(begin(number)) for number in range(10)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == list(range(10))


async def test_a_tenant_that_was_not_there_lately_keeps_nobody_waiting() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    (other,) = await begun(pacing, "globex", 1)
    other.end()
    async with busy():
        await begun(pacing, "acme", LEAST)
        waiting = asyncio.create_task(pacing.begin("acme"))
        await passes_rounds(waiting)
        clock.now += LATELY_SECONDS
        await until(waiting.done, SECONDS)


async def test_who_gives_up_waiting_keeps_nobody_behind_it() -> None:
    pacing = Pacing()
    await begun(pacing, "globex", 1)
    async with busy():
        held = await begun(pacing, "acme", LEAST)
        first, second = (asyncio.create_task(pacing.begin("acme")) for _ in range(2))
        await passes_rounds(second)
        first.cancel()
        held[0].end()
        await until(second.done, SECONDS)


async def test_what_has_ended_ends_once() -> None:
    pacing = Pacing()
    await begun(pacing, "globex", 1)
    async with busy():
        (one, *_) = await begun(pacing, "acme", LEAST)
        one.end()
        one.end()
        with one:
            pass
        await begun(pacing, "acme", 1)
        waiting = asyncio.create_task(pacing.begin("acme"))
        await passes_rounds(waiting)
        waiting.cancel()


async def test_what_has_begun_lets_others_run_for_some_rounds_of_a_busy_loop_and_goes_on() -> None:
    pacing = Pacing()
    await begun(pacing, "acme", LEAST)
    async with busy():
        assert await rounds(pacing, "acme") == 0
        await begun(pacing, "globex", 1)
        assert MOST_ROUNDS <= await rounds(pacing, "acme") < 2 * MOST_ROUNDS
        assert await rounds(pacing, "initech") == 0
    await asyncio.sleep(0)
    assert await rounds(pacing, "acme") <= 2


async def rounds(pacing: Pacing, tenant: str) -> int:
    """How many rounds of the loop pass until it goes on."""
    count, over = 0, asyncio.create_task(pacing.go_on(tenant))
    await asyncio.sleep(0)
    while not over.done():
        await asyncio.sleep(0)
        count += 1
    return count
