"""Room for tokens at servers: who gets in, who waits and for how long, and what others have there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.port import EngineOverloaded, Load, Sampling
from service.engine.servers.admission import FIRST_EXPECTED
from service.harmony.tokens import STOPS
from service.shares import Rate
from tests.support.engine.connected import CARD, ask, connected, failure, generation, hold, scripted
from tests.support.engine.generating import generated
from tests.support.engine.hooks import Sampled
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.engine.standin import Standin, standing_in
from tests.support.engine.watched import WatchedHttp
from tests.support.waiting import until

ONE = 103
"""What `generation` takes: three tokens of its prompt, and the hundred that it may sample."""

STALLING = [[5], Stall()]


@asynccontextmanager
async def room_for(room: int, script: Any = STALLING, **access: Any) -> AsyncIterator[tuple[Standin, WatchedHttp]]:
    """A server with room for so many tokens, and an engine before it."""
    async with standing_in(scripted(script), room=room) as server, connected(server, **access) as engine:
        yield server, engine


async def cancelled(*tasks: "asyncio.Task[Sampled]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def load(engine: WatchedHttp) -> Load:
    (found,) = engine.loads().values()
    return found


async def waiting(engine: WatchedHttp, **fields: Any) -> "asyncio.Task[Sampled]":
    before, task = engine.waiting, asyncio.create_task(ask(engine, **fields))
    await until(lambda: engine.waiting > before)
    return task


# --- who gets in ---------------------------------------------------------------------------------------------------


async def test_as_many_get_in_as_have_room_and_the_next_once_one_has_ended() -> None:
    async with room_for(2 * ONE) as (server, engine):
        held = [await hold(engine, id=str(number)) for number in range(2)]
        assert load(engine) == Load(2 * ONE, 2 * ONE)
        third = await waiting(engine, id="third")
        assert len(server.generations) == 2
        server.engine = scripted()
        await cancelled(held[0])
        assert (await third).tokens[0] == 5
        await cancelled(held[1])
        assert (load(engine).tokens, engine.waiting, engine.running) == (0, 0, 0)


async def test_a_room_that_is_set_counts_instead_of_what_the_server_tells() -> None:
    async with room_for(10**6, kv_tokens=ONE) as (_, engine):
        held = await hold(engine)
        await cancelled(await waiting(engine, id="other"), held)
        assert load(engine) == Load(0, ONE)


async def test_what_goes_on_here_is_not_held_up() -> None:
    async with room_for(ONE) as (server, engine):
        held = await hold(engine)
        further = await hold(engine, id="resp_1-1", begun=True)
        assert len(server.generations) == 2
        await cancelled(held, further)


async def test_no_more_than_the_expected_output_counts_until_more_is_sampled() -> None:
    allowed, go_on = Sampling(4000, stop_ids=STOPS), asyncio.Event()
    async with room_for(10**6, [[5] * 40, Stall(go_on), [5] * 600, Stall()]) as (_, engine):
        held = await hold(engine, sampling=allowed)
        assert load(engine).tokens == 3 + FIRST_EXPECTED
        go_on.set()
        await until(lambda: load(engine).tokens == 3 + 640)
        await cancelled(held)
        assert load(engine).tokens == 0


# --- who waits, and for how long -----------------------------------------------------------------------------------


async def test_who_waits_too_long_is_refused_and_told_when_to_come_back() -> None:
    async with room_for(ONE, wait_seconds=0.05) as (server, engine):
        held = await hold(engine)
        error = await failure(engine)
        assert isinstance(error, EngineOverloaded)
        assert "no vLLM server has room" in str(error)
        assert error.seconds is not None
        assert 1 <= error.seconds <= 60
        assert (engine.waiting, len(server.generations)) == (0, 1)
        await cancelled(held)


async def test_no_more_wait_than_may() -> None:
    async with room_for(ONE, waiting=2) as (_, engine):
        held = [await hold(engine), *[await waiting(engine, id=str(number)) for number in range(2)]]
        error = await failure(engine, id="last")
        assert isinstance(error, EngineOverloaded)
        assert "2 generations wait for room already" in str(error)
        assert error.seconds is not None
        await cancelled(*held)


async def test_a_tenant_that_waits_a_lot_leaves_room_to_wait_for_others() -> None:
    async with room_for(ONE, waiting=16) as (_, engine):
        held = [await hold(engine, tenant="b")]
        held += [await waiting(engine, tenant="a", id=str(number)) for number in range(14)]
        assert isinstance(await failure(engine, tenant="a"), EngineOverloaded)
        held.append(await waiting(engine, tenant="b", id="b"))
        await cancelled(*held)


async def test_the_tenant_with_the_least_under_way_is_next() -> None:
    order: list[str] = []

    async def note(tenant: str) -> None:
        await ask(engine, id=tenant, tenant=tenant)
        order.append(tenant)

    async with room_for(2 * ONE) as (server, engine):
        held = [await hold(engine, id=str(number), tenant="a") for number in range(2)]
        tasks: list[asyncio.Task[None]] = []
        for tenant in ("a", "b"):
            tasks.append(asyncio.create_task(note(tenant)))
            await until(lambda: engine.waiting == len(tasks))
        server.engine = scripted()
        await cancelled(held[0])
        await asyncio.gather(*tasks)
        assert order == ["b", "a"]
        await cancelled(held[1])


async def test_a_better_priority_goes_first() -> None:
    async with room_for(ONE) as (server, engine):
        held = await hold(engine)
        later = await waiting(engine, id="later", priority=0)
        sooner = await waiting(engine, id="sooner", priority=-1)
        server.engine = ScriptedEngine(CARD, [[6]], STALLING)
        await cancelled(held)
        assert (await sooner).tokens == [6]
        await cancelled(later)


@pytest.mark.parametrize("what", ["the servers are gone", "the engine is closed"])
async def test_who_waits_hears_it(what: str) -> None:
    async with room_for(ONE, probe_seconds=0.05) as (server, engine):
        held = await hold(engine)
        other = asyncio.create_task(failure(engine, id="other"))
        await until(lambda: engine.waiting == 1)
        await (server.die() if "servers" in what else engine.close())
        error = await other
        assert "closed" in str(error) if "closed" in what else type(error) is not EngineOverloaded
        await asyncio.wait([held])
        assert held.exception() is not None


ASKS = st.lists(st.tuples(st.integers(1, 150), st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=16)


@given(ASKS)
@settings(deadline=None, max_examples=40)
async def test_it_never_comes_to_more_than_the_room_and_all_are_served(asks: list[tuple[int, str, bool, bool]]) -> None:
    """With two servers, for one of which some wait, as it made what they go on from."""
    room, most, sampling = 200, 0, Sampling(10, stop_ids=STOPS)
    async with (
        standing_in(scripted([[5, 6]]), room=room) as one,
        standing_in(scripted([[5, 6]]), room=room) as two,
        connected(one, two) as engine,
    ):
        await ask(engine, id="first", response="first", sampling=sampling)

        async def served(number: int, size: int, tenant: str, gives_up: bool, goes_on: bool) -> None:
            nonlocal most
            home = {"continues": "first"} if goes_on else {}
            asked = generation(id=str(number), prompt=[1] * size, sampling=sampling, tenant=tenant, **home)
            try:
                async with asyncio.timeout(0.001 if gives_up else 10):
                    async for _ in generated(engine, asked):
                        most = max(most, *(each.tokens for each in engine.loads().values()))
            except TimeoutError:
                assert gives_up

        await asyncio.gather(*(served(number, *each) for number, each in enumerate(asks)))
        assert most <= room
        assert {each.tokens for each in engine.loads().values()} == {0}
        assert (engine.waiting, engine.running) == (0, 0)
        kept = sum(not gives_up for _, _, gives_up, _ in asks)
        assert len(one.generations) + len(two.generations) > kept


# --- what others have there ----------------------------------------------------------------------------------------


async def test_a_new_conversation_goes_where_others_have_less_to_do() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(standing_in(scripted([[5]]))) for _ in range(2)]
        servers[0].others = (40, 20)
        engine = await stack.enter_async_context(connected(*servers))
        for number in range(8):
            await ask(engine, id=str(number), affinity=str(number))
        assert [len(server.generations) for server in servers] == [0, 8]


async def test_a_conversation_with_a_home_stays_there_whatever_others_do() -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(standing_in(scripted([[5]]))) for _ in range(2)]
        engine = await stack.enter_async_context(connected(*servers, probe_seconds=0.05))
        await ask(engine, response="first", affinity="one")
        (home,) = [server for server in servers if server.generations]
        home.others = (40, 20)
        asked = len(home.asked)
        await until(lambda: [each.path for each in home.asked[asked:]].count("/metrics") > 1)
        await ask(engine, response="second", continues="first", affinity="one")
        assert len(home.generations) == 2
        (other,) = [server for server in servers if server is not home]
        await ask(engine, response="third", affinity="one")
        assert len(other.generations) == 1


# --- how soon there is room again ----------------------------------------------------------------------------------


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_wait_is_what_the_last_minute_says() -> None:
    clock = Clock()
    rate = Rate(clock)
    rate.take(10_000)
    for _ in range(120):
        clock.now += 1
        rate.free(10)
    assert (rate.seconds_for(10), rate.seconds_for(100), rate.seconds_for(100_000)) == (1, 10, 60)
