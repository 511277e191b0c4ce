"""Servers by name: each address that a name has is one, and they come and go with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from service.engine.names import MAX_ADDRESSES, HostNames, ServerAddress
from tests.support.engine.connected import ask, connected, hold, scripted
from tests.support.engine.scripted import Stall
from tests.support.engine.standin import Standin, standing_in
from tests.support.waiting import until

SOON = 0.05
NAME = "dns+http://vllm.models:8000"


class Zone:
    """Answers look-ups: the addresses of every host, or what goes wrong."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = list(addresses)
        self.trouble: OSError | None = None
        self.asked: list[tuple[str, int]] = []
        self.answering = asyncio.Event()
        self.answering.set()

    async def look_up(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        await self.answering.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.addresses


async def urls(names: HostNames, *listed: str) -> list[str]:
    return [place.url for place in await names.places(listed, 1)]


# --- look-ups ------------------------------------------------------------------------------------------------------


async def test_each_address_of_a_name_is_a_place_that_hears_the_name() -> None:
    zone = Zone("10.0.0.2", "10.0.0.1", "fd00::1")
    assert await HostNames(zone.look_up).places([NAME], 1) == [
        ServerAddress(f"http://{address}:8000", NAME, "vllm.models:8000")
        for address in ("10.0.0.1", "10.0.0.2", "[fd00::1]")
    ]
    assert zone.asked == [("vllm.models", 8000)]


@pytest.mark.parametrize("trouble", [None, OSError("no such host"), OSError(-2, "Name or service not known")])
async def test_what_was_known_stays_where_a_look_up_fails(
    trouble: OSError | None, caplog: pytest.LogCaptureFixture
) -> None:
    zone = Zone("10.0.0.1")
    names = HostNames(zone.look_up)
    before = await urls(names, NAME)
    zone.addresses, zone.trouble = [], trouble
    assert [await urls(names, NAME) for _ in range(3)] == [before] * 3
    assert [each.message for each in caplog.records] == ["a name can't be looked up"]
    zone.addresses, zone.trouble = ["10.0.0.2"], None
    assert await urls(names, NAME) == ["http://10.0.0.2:8000"]


async def test_a_look_up_without_an_answer_is_waited_for_by_one_alone() -> None:
    zone = Zone("10.0.0.1")
    names = HostNames(zone.look_up)
    for known in ([], ["http://10.0.0.1:8000"]):
        zone.answering.clear()
        for _ in range(3):
            assert [place.url for place in await names.places([NAME], 0.01)] == known
        zone.answering.set()
        assert await urls(names, NAME) == ["http://10.0.0.1:8000"]
    assert len(zone.asked) == 2


async def test_a_name_leads_to_no_more_servers_than_may_be() -> None:
    many = [f"10.0.{number // 256}.{number % 256}" for number in range(300)]
    assert len(await urls(HostNames(Zone(*many).look_up), NAME)) == MAX_ADDRESSES


# --- servers -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def two(*scripts: Any, **traits: Any) -> AsyncIterator[tuple[Standin, Standin]]:
    script, other = (*scripts, [[5]], [[5]])[:2]
    async with (
        standing_in(scripted(script), **traits) as first,
        standing_in(scripted(other), host="127.0.0.2", port=first.port, **traits) as second,
    ):
        yield first, second


def by_name(server: Standin, zone: Zone) -> dict[str, Any]:
    """What an engine is told that goes by name."""
    return {"urls": [f"dns+http://vllm.test:{server.port}"], "look_up": zone.look_up, "resolve_seconds": SOON}


async def test_a_name_with_two_addresses_is_two_servers() -> None:
    zone = Zone("127.0.0.1", "127.0.0.2")
    async with two() as servers, connected(*servers, **by_name(servers[0], zone)) as engine:
        assert engine.servers() == {f"{server.host}:{server.port}": True for server in servers}
        for number in range(20):
            await ask(engine, id=str(number), affinity=str(number))
        assert all(server.generations for server in servers)
        heard = {each.headers["host"] for server in servers for each in server.asked}
        assert heard == {f"vllm.test:{servers[0].port}"}


async def test_servers_come_and_go_with_their_addresses() -> None:
    go_on, zone = asyncio.Event(), Zone("127.0.0.1")
    script = [[5], Stall(go_on), [6]]
    async with two(script, [[7]]) as servers, connected(*servers, **by_name(servers[0], zone)) as engine:
        running = await hold(engine)
        zone.addresses = ["127.0.0.2"]
        await until(lambda: set(engine.servers()) == {f"127.0.0.2:{servers[1].port}"})
        assert [(await ask(engine, id=str(number))).tokens for number in range(4)] == [[7]] * 4
        go_on.set()
        assert (await running).tokens == [5, 6], "what ran there ran to its end"
        zone.addresses = ["127.0.0.1", "127.0.0.2"]
        await until(lambda: len(engine.servers()) == 2)
