"""Pacing: of several tenants one that asks for more than the loop can do waits, and no other one does."""

import asyncio

from service.pacing import LATELY_SECONDS, MODEST, MOST_ROUNDS, WAIT_SECONDS, Pacing, Work
from tests.support.service.lag import busy
from tests.support.waiting import until

SECONDS = 10.0


class Clock:
    """A time that tests choose."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def begun(pacing: Pacing, tenant: str, count: int) -> list[Work]:
    """So many that begin, which nothing may hinder."""
    async with asyncio.timeout(SECONDS):
        return [await pacing.begin(tenant) for _ in range(count)]


async def passes_rounds(task: asyncio.Task[Work]) -> None:
    """Some rounds of the loop, after which it still waits."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()


async def test_a_tenant_that_is_alone_never_waits_nor_does_anybody_on_a_quick_loop() -> None:
    async with busy():
        await begun(Pacing(), "acme", 100)
    pacing = Pacing()
    await begun(pacing, "globex", 1)
    await begun(pacing, "acme", 100)


async def test_of_several_one_waits_for_more_while_the_loop_is_busy_and_no_other_one() -> None:
    pacing = Pacing()
    await begun(pacing, "globex", 1)
    async with busy():
        held = await begun(pacing, "acme", MODEST)
        waiting = asyncio.create_task(pacing.begin("acme"))
        await passes_rounds(waiting)
        await begun(pacing, "globex", MODEST - 1)
        await begun(pacing, "initech", MODEST)
        held[0].close()
        await until(waiting.done, SECONDS)


async def test_a_tenant_that_was_not_there_lately_keeps_nobody_waiting() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    (other,) = await begun(pacing, "globex", 1)
    other.close()
    async with busy():
        await begun(pacing, "acme", MODEST)
        waiting = asyncio.create_task(pacing.begin("acme"))
        await passes_rounds(waiting)
        clock.now += LATELY_SECONDS
        await until(waiting.done, SECONDS)


async def test_however_busy_the_loop_stays_one_more_begins_each_second() -> None:
    clock = Clock()
    pacing = Pacing(clock)
    await begun(pacing, "globex", 1)
    async with busy():
        await begun(pacing, "acme", MODEST)
        waiting = [asyncio.create_task(pacing.begin("acme")) for _ in range(3)]
        for count in range(3):
            await passes_rounds(waiting[count])
            clock.now += WAIT_SECONDS
            await until(waiting[count].done, SECONDS)


async def test_who_is_in_a_hurry_begins_at_once_and_keeps_nobody_behind_it() -> None:
    pacing, hurry = Pacing(), asyncio.Event()
    await begun(pacing, "globex", 1)
    async with busy():
        held = await begun(pacing, "acme", MODEST)
        first, hurried, last = (
            asyncio.create_task(pacing.begin("acme", hurry=each)) for each in (None, hurry, asyncio.Event())
        )
        await passes_rounds(hurried)
        hurry.set()
        await until(hurried.done, SECONDS)
        assert not first.done()
        assert not last.done()
        for work in [*held, await hurried]:
            work.close()
        await until(first.done, SECONDS)
        (await first).close()
        await until(last.done, SECONDS)


async def test_who_gives_up_as_its_turn_comes_leaves_nothing_at_work_and_keeps_nobody_behind_it() -> None:
    pacing = Pacing(lambda: 0.0)
    await begun(pacing, "globex", 1)
    async with busy():
        held = await begun(pacing, "acme", MODEST)
        first, second = (asyncio.create_task(pacing.begin("acme")) for _ in range(2))
        await passes_rounds(second)
        held[0].close()
        first.cancel()
        await until(second.done, SECONDS)
        for work in [*held[1:], await second]:
            work.close()
        await begun(pacing, "acme", MODEST)


async def test_what_has_begun_lets_others_run_for_some_rounds_of_a_busy_loop_and_goes_on() -> None:
    pacing = Pacing()
    await begun(pacing, "acme", MODEST + 1)
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
