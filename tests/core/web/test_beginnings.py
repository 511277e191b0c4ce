"""Requests that come all at once, beside those of another tenant: few begin in a turn of the loop, and in turn."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import uvicorn
from uvicorn.lifespan.on import LifespanOn

from service.app import create_app
from service.commands.serve import listen
from service.pacing import Pacing
from service.process import load_settings
from service.settings.core import CoreSettings
from service.web.beginnings import AT_ONCE, BEGINNINGS, Beginnings
from service.web.http_protocol import WHOSE, BoundedHttpProtocol
from tests.support.waiting import until

MANY = 16 * AT_ONCE
END = b"0\r\n\r\n"
DEADLINE_SECONDS = 10

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Application:
    """An application that answers with nothing, and notes whose request began in which turn of the loop."""

    def __init__(self) -> None:
        self.begun = list[tuple[str, int]]()
        self.begins = asyncio.Event()
        self._turn = 0

    async def count_turns(self) -> None:
        while True:
            self._turn += 1
            await asyncio.sleep(0)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            scope["state"][BEGINNINGS] = Beginnings(lambda _: True)
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        whose = dict(scope["headers"])[b"key"].decode()
        scope["extensions"][WHOSE] = whose
        self.begun.append((whose, self._turn))
        self.begins.set()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body"})


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def server(application: Application) -> uvicorn.Server:
    config = uvicorn.Config(application, http=BoundedHttpProtocol, ws="none", lifespan="on", log_config=None)
    return uvicorn.Server(config)


@pytest.fixture
async def acmes(server: uvicorn.Server, application: Application) -> AsyncGenerator[list[Connection]]:
    """Many connections of Acme, and as the last one one of Globex; each was answered before."""
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        opened = [await asyncio.open_connection(*listener.getsockname()) for _ in range(MANY + 1)]
        counting = asyncio.create_task(application.count_turns())
        ask(opened[:-1], "acme")
        ask(opened[-1:], "globex")
        await answered(opened)
        application.begun.clear()
        application.begins.clear()
        yield opened
        counting.cancel()
        for _, writer in opened:
            writer.close()
        server.should_exit = True
        await serving


def ask(connections: list[Connection], key: str) -> None:
    """Send a request on each of these connections: the server sees them all in one turn."""
    for _, writer in connections:
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\nkey: %b\r\n\r\n" % key.encode())


async def answered(connections: list[Connection]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        for reader, _ in connections:
            await reader.readuntil(END)


async def test_few_begin_in_a_turn_and_all_in_the_end(application: Application, acmes: list[Connection]) -> None:
    ask(acmes[:-1], "acme")
    await answered(acmes[:-1])
    turns = [turn for _, turn in application.begun]
    assert len(turns) == MANY
    assert max(map(turns.count, turns)) <= AT_ONCE + 1


async def test_a_tenants_request_begins_before_many_of_another_that_came_first(
    application: Application, acmes: list[Connection]
) -> None:
    ask(acmes[:-1], "acme")
    ask(acmes[-1:], "globex")
    await answered(acmes)
    assert [whose for whose, _ in application.begun].index("globex") <= AT_ONCE + 2


async def test_a_connection_that_goes_while_it_waits_for_its_turn_begins_with_nothing(
    application: Application, server: uvicorn.Server, acmes: list[Connection]
) -> None:
    address = acmes[-2][1].get_extra_info("sockname")
    last: Any = next(each for each in server.server_state.connections if getattr(each, "client", None) == address)
    ask(acmes[:-1], "acme")
    await application.begins.wait()
    last.transport.abort()
    await answered(acmes[:-2])
    await until(lambda: last not in server.server_state.connections, DEADLINE_SECONDS)
    assert len(application.begun) == MANY - 1


async def test_a_stop_loses_no_request_that_waits_for_its_turn(
    application: Application, server: uvicorn.Server, acmes: list[Connection]
) -> None:
    ask(acmes[:-1], "acme")
    await application.begins.wait()
    assert len(application.begun) < MANY
    for connection in list(server.server_state.connections):
        connection.shutdown()
    await answered(acmes[:-1])


@pytest.mark.parametrize("tenants", [("acme",), ("acme", "globex")])
async def test_the_service_bounds_them_where_it_has_several_tenants(
    settings: CoreSettings, monkeypatch: pytest.MonkeyPatch, tenants: Sequence[str]
) -> None:
    monkeypatch.setattr(Pacing, "several", Mock(return_value=True))
    keys = ",".join(f"{each}:{each * 8}" for each in tenants)
    app = create_app(load_settings(redis_url=settings.redis_url, api_keys=keys))
    lifespan = LifespanOn(uvicorn.Config(app, lifespan="on", log_config=None))
    await lifespan.startup()
    beginnings = lifespan.state[BEGINNINGS]
    assert isinstance(beginnings, Beginnings)
    assert all(beginnings.may("unknown") for _ in range(AT_ONCE))
    assert beginnings.may("unknown") == (len(tenants) == 1)
    await lifespan.shutdown()


class Line:
    """Beginnings beside another tenant, or not, and the requests that began in them."""

    def __init__(self, *, several: bool) -> None:
        self.beginnings = Beginnings(lambda _: several)
        self.begun = list[str]()

    def come(self, *tenants: str) -> None:
        for tenant in tenants:
            if self.beginnings.may(tenant):
                self.begun.append(tenant)
            else:
                self.beginnings.leave(tenant, partial(self.begun.append, tenant))


async def test_a_tenant_that_is_alone_begins_with_all_at_once() -> None:
    line = Line(several=False)
    line.come(*["acme"] * MANY)
    assert len(line.begun) == MANY


async def test_those_that_were_left_begin_one_in_a_turn_and_of_each_tenant_by_turns() -> None:
    line = Line(several=True)
    line.come(*["acme"] * (AT_ONCE + 2), *["initech"] * 2)
    assert line.begun == ["acme"] * AT_ONCE
    for count, tenant in enumerate(("acme", "initech", "acme", "initech"), start=AT_ONCE + 1):
        await asyncio.sleep(0)
        assert len(line.begun) == count
        assert line.begun[-1] == tenant


async def test_a_tenant_with_none_left_begins_at_once_and_one_with_some_behind_these() -> None:
    line = Line(several=True)
    line.come(*["acme"] * MANY)
    await asyncio.sleep(0)
    line.come("acme", "globex")
    assert line.begun[AT_ONCE:] == ["acme", "globex"]
