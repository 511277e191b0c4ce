"""Which of an engine's servers gets what, how servers come and go meanwhile, and who waits for which one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.port import EngineUnavailable
from service.engine.servers.choosing import ALONE, APART, Choosing, Home, rank
from service.engine.servers.engine import Access
from tests.support.engine.connected import CARD, NEVER_SECONDS, ask, connected, failure, hold, scripted, several
from tests.support.engine.scripted import ScriptedEngine, Stall
from tests.support.engine.standin import Standin, standing_in
from tests.support.engine.watched import WatchedHttp
from tests.support.waiting import until

AFFINITIES = [str(number) for number in range(200)]
servers_of = st.lists(st.text("abcdef0123456789.:", min_size=1, max_size=12), min_size=2, max_size=8, unique=True)


def places(urls: list[str], weights: dict[str, float] | None = None) -> dict[str, str]:
    """The server that comes first for each affinity."""
    weigh = weights or {}
    return {one: max(urls, key=lambda url: rank(one, url, weigh.get(url, 1.0))) for one in AFFINITIES}


@given(servers_of)
def test_a_server_that_is_added_moves_its_own_share_alone(urls: list[str]) -> None:
    *before, added = urls
    old, new = places(before), places(urls)
    moved = {one for one in AFFINITIES if old[one] != new[one]}
    assert {new[one] for one in moved} <= {added}
    assert len(moved) <= 3 * len(AFFINITIES) / len(urls), "about its even share"


def test_a_server_gets_what_its_weight_says() -> None:
    urls = ["http://a", "http://b", "http://c"]
    found = [rank(str(n), "http://a", 2.0) > max(rank(str(n), url, 1.0) for url in urls[1:]) for n in range(8000)]
    assert sum(found) / len(found) == pytest.approx(0.5, abs=0.03)


def access(*servers: Standin, **fields: Any) -> Access:
    given = {"probe_seconds": NEVER_SECONDS, "connect_seconds": 20, **fields}
    return Access(tuple(server.url for server in servers), **given)


async def test_a_server_that_is_taken_out_ends_what_it_has_and_begins_none() -> None:
    go_on = asyncio.Event()
    async with several([[5], Stall(go_on), [6]], [[7]]) as (leaving, staying), connected(leaving) as engine:
        running = await hold(engine)
        await engine.change(access(staying))
        assert [(await ask(engine, id=str(number), affinity=str(number))).tokens for number in range(8)] == [[7]] * 8
        assert set(engine.servers()) == {staying.url.removeprefix("http://")}
        go_on.set()
        assert (await running).tokens == [5, 6]
        assert len(leaving.generations) == 1


async def test_one_that_stays_keeps_what_runs_there_and_a_new_one_is_asked_first() -> None:
    go_on = asyncio.Event()
    async with several([[5], Stall(go_on)], [[7]]) as (staying, new), connected(staying) as engine:
        running = await hold(engine)
        await engine.change(access(staying, new))
        assert all(engine.servers().values())
        go_on.set()
        assert (await running).tokens == [5]
        for number in range(30):
            await ask(engine, id=str(number), affinity=str(number))
        assert new.generations
        assert len(staying.generations) > 1


async def test_a_list_with_none_that_is_up_says_so_and_one_that_is_closed_takes_no_other() -> None:
    async with several([[5]], [[7]]) as (first, second), connected(first) as engine:
        await second.die()
        await engine.change(access(second))
        assert isinstance(await failure(engine), EngineUnavailable)
        await engine.close()
        with pytest.raises(EngineUnavailable, match="closed"):
            await engine.change(access(first))


async def test_a_conversation_goes_on_where_its_last_response_was_made() -> None:
    async with several([[5]], [[5]], [[5]]) as servers, connected(*servers, probe_seconds=0.02) as engine:
        one = next(one for one in AFFINITIES if places([server.url for server in servers])[one] == servers[0].url)
        await servers[0].die()
        await ask(engine, affinity=one, response="first")
        (second,) = (server for server in servers[1:] if server.generations)
        await servers[0].start()
        await until(lambda: all(engine.servers().values()))
        await ask(engine, affinity=one, response="second", continues="first")
        assert len(second.generations) == 2, "its prefix is there"
        await ask(engine, affinity=one, response="other")
        assert len(servers[0].generations) == 1, "another one begins where it would"


async def test_a_server_that_came_back_has_nothing_of_what_it_had() -> None:
    async with several([[5]], [[5]]) as servers, connected(*servers, probe_seconds=0.02) as engine:
        one = next(one for one in AFFINITIES if places([server.url for server in servers])[one] == servers[0].url)
        for number in range(2):  # the first response is made on the second server, as the first is away
            await servers[number].die()
            if not number:
                await ask(engine, affinity=one, response="first")
            await until(lambda number=number: not engine.servers()[servers[number].url.removeprefix("http://")])
            await servers[number].start()
            await until(lambda: all(engine.servers().values()))
        await ask(engine, affinity=one, response="second", continues="first")
        assert [len(server.generations) for server in servers] == [1, 1]


ROOM = 1000
LONG = [1] * 600

# --- how long it is worth it ------------------------------------------------------------------------------------------


def home_of(tokens: int) -> Any:
    """One that has so many tokens; which server it is nobody asks."""
    return Home(None, 0, tokens)  # type: ignore[arg-type]


def test_a_home_is_waited_for_as_long_as_computing_would_take() -> None:
    choosing = Choosing()
    for tokens in (100, 300, 900):
        choosing.note_computed(tokens, 0.5 + tokens / 1000)
    assert choosing.patience(home_of(4000), 30) == pytest.approx((4, 30 * APART))
    assert choosing.patience(home_of(9000), 30) == pytest.approx((9, 9))
    assert choosing.patience(home_of(90_000), 30) == pytest.approx((30 * ALONE, 30 * ALONE))
    assert choosing.patience(None, 30) == (0, 30 * APART)


# --- the same before servers ------------------------------------------------------------------------------------------


@asynccontextmanager
async def full(
    compute_seconds: float, waiting: int = 10
) -> AsyncIterator[tuple[WatchedHttp, Standin, Standin, list[Any]]]:
    """An engine before two servers with a long generation each, of which the first made the response "first"; and what
    ends these.
    """
    async with (
        standing_in(scripted(), room=ROOM) as one,
        standing_in(scripted(), room=ROOM) as two,
        connected(one, two, wait_seconds=60, waiting=waiting) as engine,
    ):
        one.compute_seconds = two.compute_seconds = compute_seconds
        await ask(engine, id="short")
        await ask(engine, id="first", prompt=LONG, response="first")
        home, other = (one, two) if "first" in asked(one) else (two, one)
        for server in (one, two):
            server.compute_seconds = 0
            server.engine = ScriptedEngine(CARD, [[5], Stall()])
        held = [await hold(engine, id="home", prompt=LONG, continues="first")]
        held.append(await hold(engine, id="other", prompt=[2] * 600))
        for server in (one, two):
            server.engine = scripted()
        yield engine, home, other, held
        for task in held:
            task.cancel()
        await asyncio.wait(held)


def continued(engine: WatchedHttp) -> "asyncio.Task[Any]":
    """One that goes on from the first response."""
    return asyncio.create_task(ask(engine, id="next", prompt=LONG, continues="first", response="next"))


def asked(server: Standin) -> list[str]:
    return [each.headers["x-request-id"] for each in server.generations]


async def test_a_conversation_waits_for_the_server_that_has_its_prefix() -> None:
    async with full(0.006) as (engine, home, other, held):
        task = continued(engine)
        await until(lambda: engine.waiting == 1)
        held[1].cancel()
        await until(lambda: not other.running)
        assert engine.waiting == 1
        held[0].cancel()
        await task
        assert asked(home)[-1] == "next"


async def test_who_waits_for_a_server_that_dies_goes_elsewhere() -> None:
    async with full(0.006) as (engine, home, other, held):
        task = continued(engine)
        await until(lambda: engine.waiting == 1)
        held[1].cancel()
        await until(lambda: not other.running)
        await home.die()
        await task
        assert asked(other)[-1] == "next"
