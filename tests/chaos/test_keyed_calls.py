"""Calls that may have an effect, of requests with an Idempotency-Key in the foreground: an API dies between every two
steps of one, or loses the store and comes back. Whoever asks again has it made once, or is told that nobody knows.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import Response

from service import app
from service.responses.service import Service
from service.settings.settings import Settings, load_settings
from service.web import idempotency
from store.embedded import EmbeddedServer
from store.errors import StoreUnavailable
from store.redis import scripts
from tests.support.chaos.deaths import each_dies
from tests.support.chaos.inside import WatchedEngine
from tests.support.chaos.mortal import KEYED_SECONDS
from tests.support.chaos.mortals import Mortals, dead
from tests.support.chaos.watched import watched
from tests.support.service.inside import serving
from tests.support.service.process import MODEL
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import until

SECONDS = 60.0
TOKENS_PER_SECOND = 400
PATIENT: dict[str, Any] = {"lease_seconds": 12.0, "store_timeout_seconds": 4.0}

pytestmark = pytest.mark.timeout(180)


class Death(NamedTuple):
    """A step at which an API dies; how often the tool is called in all, and how the item of the repeat ends."""

    step: str
    calls: int
    status: str
    asks: bool = False

    @property
    def name(self) -> str:
        """What stands for it in what the tool is told."""
        return f"{'approved ' if self.asks else ''}{self.step}".replace(" ", "-")


DEATHS = [
    Death("beginning a call", 1, "completed"),
    Death("calling", 0, "failed"),
    Death("called", 1, "failed"),
    Death("appending", 1, "failed"),
    Death("using up", 1, "completed", asks=True),
    Death("used up", 0, "failed", asks=True),
    Death("called", 1, "failed", asks=True),
    Death("appending", 1, "failed", asks=True),
]


class Asked(NamedTuple):
    """A request with a key whose response calls a tool, perhaps one that somebody has just approved."""

    key: str
    body: dict[str, Any]

    async def at(self, client: AsyncOpenAI) -> Response:
        return await client.responses.create(model=MODEL, extra_headers={"Idempotency-Key": self.key}, **self.body)


async def asked_for(client: AsyncOpenAI, mcp: McpServer, name: str, *, asks: bool) -> Asked:
    policy = "always" if asks else "never"
    tool = {"type": "mcp", "server_label": "maths", "server_url": mcp.url, "require_approval": policy}
    tools, words = [tool | {"allowed_tools": ["send_mail"]}], f"Call the tool send_mail to {name}"
    if not asks:
        return Asked(name, {"tools": tools, "input": words})
    first: Any = await client.responses.create(model=MODEL, input=words, tools=tools)  # type: ignore[call-overload]
    approved = {"type": "mcp_approval_response", "approval_request_id": first.output[-1].id, "approve": True}
    return Asked(name, {"tools": tools, "input": [approved], "previous_response_id": first.id})


def call_of(response: Response) -> Any:
    (call,) = [item for item in response.output if item.type == "mcp_call"]
    return call


async def die(program: Mortals, doomed: Settings, death: Death, *, client: AsyncOpenAI, mcp: McpServer) -> None:
    """Ask an API that dies at a step, and then one that lives."""
    asked = await asked_for(client, mcp, death.name, asks=death.asks)
    pid, url = await program.serve(doomed, death.step)
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as mortal:
        with pytest.raises(openai.APIConnectionError):
            await asked.at(mortal)
    await until(lambda: dead(pid), SECONDS)
    again, once_more = await asked.at(client), await asked.at(client)
    assert (again.status, call_of(again).status) == ("completed", death.status)
    assert ("not known" in str(call_of(again).error)) is (death.status == "failed")
    assert once_more.id == again.id
    assert mcp.began("send_mail", death.name) == death.calls


async def test_an_api_that_dies_around_a_call_has_it_made_once(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        mcp.let_go()
        doomed = load_settings(redis_url=store.url, worker=False, mcp_allow=mcp.url, **PATIENT)
        settings = load_settings(redis_url=store.url, mcp_allow=mcp.url, **PATIENT)
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            await each_dies(DEATHS, partial(die, client=client, mcp=mcp), lambda _: doomed)


class CutOff:
    """An API that loses the store at a step, until it is let go on."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._lost = False
        self.there = asyncio.Event()
        self.go_on = asyncio.Event()

    async def at(self, step: str) -> None:
        if step == self._step:
            self._lost = True
            self.there.set()
            await self.go_on.wait()
            self._lost = False

    def around(self, service: Service) -> Service:
        """A service that is cut off at the step."""
        server = watched(service, self.at).store.server
        run = server.run

        async def running(work: Any, *given: Any, **more: Any) -> Any:
            if self._lost and work is scripts.keep_keyed:
                raise StoreUnavailable("it is away")
            return await run(work, *given, **more)

        server.run = running
        return service


@asynccontextmanager
async def cut_off(settings: Settings, step: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Any, CutOff]]:
    """A client of an API that will be cut off. Its keyed requests are taken for dead soon."""
    cut, open_service = CutOff(step), app.open_service
    with monkeypatch.context() as patch:
        patch.setattr(app, "open_service", lambda *given: cut.around(open_service(*given)))
        patch.setattr(idempotency, "KEYED_LEASES", KEYED_SECONDS / settings.lease_seconds)
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            yield client, cut


@pytest.mark.parametrize(("step", "asks"), [("beginning a call", False), ("using up", True), ("used up", True)])
async def test_an_api_that_lost_the_store_makes_no_call_that_another_one_has_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, asks: bool
) -> None:
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        mcp.let_go()
        settings = load_settings(redis_url=store.url, worker=False, mcp_allow=mcp.url, **PATIENT)
        name = step.replace(" ", "-")
        async with (
            serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside,
            inside.client() as client,
            cut_off(settings, step, monkeypatch) as (lost, cut),
        ):
            asked = await asked_for(client, mcp, name, asks=asks)
            first = asyncio.create_task(asked.at(lost))
            await cut.there.wait()
            again = await asked.at(client)
            cut.go_on.set()
            with pytest.raises(openai.InternalServerError):
                await first
            assert again.status == "completed"
            assert mcp.began("send_mail", name) == 1
            assert ("not known" in str(call_of(again).error)) is (step == "used up")


class Lost:
    """An API whose store takes no response while it is away."""

    away = False

    async def at(self, step: str) -> None:
        if self.away and step == "appending":
            raise StoreUnavailable("it takes no writes")

    def around(self, service: Service) -> Service:
        """A service of which this is true."""
        return watched(service, self.at)


@pytest.mark.parametrize("asks", [False, True])
async def test_whoever_repeats_a_call_whose_response_was_lost_is_told_that_nobody_knows_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asks: bool
) -> None:
    lost, open_service = Lost(), app.open_service
    monkeypatch.setattr(app, "open_service", lambda *given: lost.around(open_service(*given)))
    with EmbeddedServer(tmp_path / "store") as store, mcp_server(tmp_path / "mcp") as mcp:
        mcp.let_go()
        settings = load_settings(redis_url=store.url, worker=False, mcp_allow=mcp.url, store_patience_seconds=0.1)
        async with serving(settings, WatchedEngine(TOKENS_PER_SECOND)) as inside, inside.client() as client:
            asked = await asked_for(client, mcp, "lost", asks=asks)
            lost.away = True
            first = await asked.at(client)
            lost.away = False
            again, once_more = await asked.at(client), await asked.at(client)
            assert first.status == "failed"
            assert (again.status, call_of(again).status) == ("completed", "failed")
            assert "not known" in str(call_of(again).error)
            assert once_more.id == again.id
            assert mcp.began("send_mail", "lost") == 1
