"""Which of an engine's servers gets what, and how servers come and go while they are at work."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.port import EngineUnavailable
from service.engine.servers.choosing import rank
from service.engine.servers.engine import Access
from tests.support.engine.connected import NEVER_SECONDS, ask, connected, failure, hold, several
from tests.support.engine.scripted import Stall
from tests.support.engine.standin import Standin
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
