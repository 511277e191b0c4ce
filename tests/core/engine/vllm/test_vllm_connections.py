"""vLLM over HTTP: what is let go of when a generation ends or is given up, or the engine is closed, at any moment."""

import asyncio

import pytest

from service.engine.port import EngineOverloaded, EngineUnavailable
from tests.support.engine.connected import ask, connected, failure, hold, scripted
from tests.support.engine.scripted import Stall
from tests.support.engine.standin import standing_in
from tests.support.waiting import until

TICKS = range(0, 80, 5)
"""At which turns of the loop something is broken off; a generation takes some 50."""


async def test_closing_leaves_no_task_and_no_connection() -> None:
    async with standing_in(scripted([[5], Stall()])) as server, standing_in(scripted([[5], Stall()])) as other:
        before = asyncio.all_tasks()
        async with connected(server, other, probe_seconds=0.01) as engine:
            tasks = [await hold(engine, affinity=str(number)) for number in range(6)]
            await until(lambda: len(server.asked) > 20, 20)
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: server.open_connections + other.open_connections == 0, 20)
        await until(lambda: asyncio.all_tasks() <= before, 20)


async def test_no_more_generations_are_under_way_than_allowed() -> None:
    async with standing_in(scripted([[5], Stall()])) as server, connected(server, connections=2) as engine:
        held = [await hold(engine) for _ in range(2)]
        error = await failure(engine)
        assert type(error) is EngineOverloaded
        assert "2 generations" in str(error)
        assert len(server.generations) == 2
        await engine.check()
        held[0].cancel()
        await until(lambda: engine.running == 1, 20)
        (await hold(engine)).cancel()
        held[1].cancel()


@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize("what", ["cancelled", "closed", "dead"])
async def test_whatever_breaks_off_at_any_moment_leaves_nothing(what: str, ticks: int) -> None:
    async with standing_in(scripted([[5], Stall()])) as server, connected(server) as engine:
        task = asyncio.create_task(ask(engine))
        for _ in range(ticks):
            await asyncio.sleep(0)
        match what:
            case "cancelled":
                task.cancel()
            case "closed":
                await engine.close()
            case _:
                await server.die()
        async with asyncio.timeout(20):
            (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError if what == "cancelled" else EngineUnavailable)
        assert engine.running == 0
        await until(lambda: server.running == 0, 20)
        if what == "closed":
            await until(lambda: server.open_connections == 0, 20)
            await engine.start()
        server.engine = scripted()
        if what == "dead":
            await server.start()
        assert (await ask(engine)).finish
