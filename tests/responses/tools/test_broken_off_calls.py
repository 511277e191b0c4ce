"""Calls of servers' tools, code and the browser that are broken off, in every way that a response can be: each ends at
once, its item is incomplete, and what code has done until then stays.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from service.settings.settings import Settings
from tests.responses.tools.test_code_interpreter import OUTPUTS, code
from tests.responses.tools.test_mcp_responses import call, server
from tests.responses.tools.test_web_search import SEARCHED
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.search.site import Site, searched_site
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.tools.server import McpServer
from tests.support.waiting import until

SOON_SECONDS = 6.0
"""Within what a call has ended that would go on for 20 s at least, on cores that others share."""

LIMIT_SECONDS = 1.5
ENDLESS = "n = 1\nopen('/mnt/data/began', 'w').close()\nwhile True: n += 1"
ADDRESS = "/v1/responses"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    """A sandbox for all tests of this file."""
    with folder_for_all() as shared:
        process = SandboxProcess(
            tmp_path_factory.mktemp("sandbox"), shared, sandbox_sessions=20, sandbox_tenant_sessions=20
        )
        try:
            yield process
        finally:
            process.kill()


CALLS = {"server": call("send_mail", '{"to":"a"}'), "search": SEARCHED, "code": code(ENDLESS)}
"""How the model calls what works without end."""


class Tool(NamedTuple):
    """A tool as it is declared, and whether a call of it has begun."""

    declared: Any
    began: Callable[[], Awaitable[bool]]


class World:
    """A running service, its tools, and what the tests look at."""

    def __init__(self, inside: Inside, settings: Settings, remote: SandboxProcess, mcp: McpServer, site: Site) -> None:
        self.inside, self.settings = inside, settings
        self._mcp, self._site = mcp, site
        self.container = ""

    async def tool(self, kind: str) -> Tool:
        """The tool of a kind, which nobody has called."""
        if kind == "code":
            async with self.inside.client() as client:
                self.container = (await client.containers.create(name="endless")).id
            return Tool({"type": "code_interpreter", "container": self.container}, self._code_runs)
        if kind == "search":
            asked = len(self._site.asked)

            async def searching() -> bool:
                return len(self._site.asked) > asked

            return Tool({"type": "web_search"}, searching)
        before = self._mcp.began("send_mail")

        async def sending() -> bool:
            return self._mcp.began("send_mail") > before

        return Tool(server(self._mcp), sending)

    async def _code_runs(self) -> bool:
        async with self.inside.client() as client:
            return bool((await client.containers.files.list(self.container)).data)


@asynccontextmanager
async def world(
    settings: Settings, remote: SandboxProcess, mcp: McpServer, kind: str, **changes: Any
) -> AsyncIterator[tuple[World, Tool]]:
    """A service with a tool of a kind that doesn't answer; its model calls that once, and prints `n` then."""
    mcp.hold()
    with searched_site() as site:
        searched = {"search": "searxng", "search_url": site.url, "search_hosts": ("127.0.0.1",)}
        given = settings.model_copy(
            update={"mcp_allow": (mcp.url,), "sandbox": remote.listen, **searched, "worker": True, **changes}
        )
        engine = scripted([CALLS[kind]], [code("n > 0")], [answer("So.")])
        async with serving(given, engine) as inside:
            made = World(inside, given, remote, mcp, site)
            yield made, await made.tool(kind)


async def ended(world: World, id: str) -> dict[str, Any]:
    """A response once it has ended, which is soon."""
    began = time.monotonic()
    async with world.inside.http() as http:

        async def get() -> dict[str, Any]:
            return (await http.get(f"{ADDRESS}/{id}")).raise_for_status().json()

        over = await until(get, SOON_SECONDS, wanted=lambda each: each["status"] not in ("queued", "in_progress"))
    assert time.monotonic() - began < SOON_SECONDS
    return over


def body(tool: Tool, **members: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": "Go.", "tools": [tool.declared], "include": OUTPUTS, **members}


async def hang_up_a_stream(world: World, tool: Tool) -> dict[str, Any]:
    """The client of a stream is gone."""
    async with world.inside.http() as http:
        async with http.stream("POST", ADDRESS, json=body(tool, stream=True)) as stream:
            lines = stream.aiter_lines()
            while not (line := await anext(lines)).startswith("data: "):
                pass
            await until(tool.began)
        id = json.loads(line.removeprefix("data: "))["response"]["id"]
        await until(lambda: http.get(f"{ADDRESS}/{id}"), SOON_SECONDS, wanted=lambda each: each.status_code == 200)
    return await ended(world, id)


async def cancel(world: World, tool: Tool) -> dict[str, Any]:
    """A response in the background is cancelled."""
    async with world.inside.http() as http:
        id = (await http.post(ADDRESS, json=body(tool, background=True))).json()["id"]
        await until(tool.began)
        assert (await http.post(f"{ADDRESS}/{id}/cancel")).status_code == 200
    return await ended(world, id)


async def close_a_socket(world: World, tool: Tool) -> dict[str, Any]:
    async with socket(world.inside.url) as ws:
        await ws.send(**body(tool))
        id = (await ws.next())["response"]["id"]
        await until(tool.began)
        ws.connection.transport.abort()
    async with world.inside.http() as http:
        await until(lambda: http.get(f"{ADDRESS}/{id}"), SOON_SECONDS, wanted=lambda each: each.status_code == 200)
    return await ended(world, id)


async def wait_for_the_limit(world: World, tool: Tool) -> dict[str, Any]:
    """The time of a response in the foreground is up."""
    async with world.inside.http() as http:
        stream = await http.post(ADDRESS, json=body(tool, stream=True))
    last = [line for line in stream.text.split("\n") if line.startswith("data: {")][-1]
    return json.loads(last.removeprefix("data: "))["response"]


Way = Callable[[World, Tool], Awaitable[dict[str, Any]]]
WAYS: dict[Way, str] = {
    hang_up_a_stream: "cancelled",
    cancel: "cancelled",
    close_a_socket: "cancelled",
    wait_for_the_limit: "failed",
}
LIMITS: dict[Way, dict[str, float]] = {
    wait_for_the_limit: {"request_seconds": LIMIT_SECONDS},
}


def broken_off(response: dict[str, Any]) -> dict[str, Any]:
    (item,) = [item for item in response["output"] if item["type"] in KINDS]
    return item


KINDS = {"mcp_call", "web_search_call", "code_interpreter_call"}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", ["server", "search", "code"])
async def test_a_call_ends_at_once_with_its_response(
    settings: Settings, remote: SandboxProcess, fixture: McpServer, kind: str, way: Way
) -> None:
    told = fixture.cancelled("send_mail")
    async with world(settings, remote, fixture, kind, **LIMITS.get(way, {})) as (here, tool):
        response = await way(here, tool)
        item = broken_off(response)
        assert (response["status"], item["status"]) == (WAYS[way], "incomplete")
        if kind == "server":
            assert "not known" in item["error"]["content"][0]["text"]
            await until(lambda: fixture.cancelled("send_mail") > told, SOON_SECONDS, "the server isn't told")
        if kind == "code":
            assert "not known" in item["outputs"][0]["logs"]
            async with here.inside.http() as http, asyncio.timeout(SOON_SECONDS):
                then = (await http.post(ADDRESS, json=body(tool))).json()
            assert [output["logs"] for output in broken_off(then)["outputs"]] == ["True\n"]


SAID = {
    "server": ("response.mcp_call.in_progress", "response.mcp_call_arguments.done"),
    "search": ("response.web_search_call.in_progress", "response.web_search_call.searching"),
    "code": ("response.code_interpreter_call.in_progress", "response.code_interpreter_call.interpreting"),
}
"""The words on a call before it has an outcome."""


@pytest.mark.parametrize("kind", SAID)
async def test_another_replica_tells_of_a_call_as_soon_as_it_begins(
    settings: Settings, remote: SandboxProcess, fixture: McpServer, kind: str
) -> None:
    async with (
        world(settings, remote, fixture, kind) as (here, tool),
        serving(settings.model_copy(update={"worker": False}), scripted([answer("No.")])) as other,
        other.http() as elsewhere,
        here.inside.http() as http,
    ):
        id = (await http.post(ADDRESS, json=body(tool, background=True, stream=False))).json()["id"]
        told: list[str] = []
        async with asyncio.timeout(SOON_SECONDS), elsewhere.stream("GET", f"{ADDRESS}/{id}?stream=true") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    told.append(json.loads(line.removeprefix("data: "))["type"])
                if {*SAID[kind]} <= {*told}:
                    break
        await until(tool.began)
        shown = (await elsewhere.get(f"{ADDRESS}/{id}")).json()
        assert (await elsewhere.post(f"{ADDRESS}/{id}/cancel")).status_code == 200
        over = await ended(here, id)

    assert broken_off(shown)["status"] in ("in_progress", "interpreting", "searching")
    assert (over["status"], broken_off(over)["status"]) == ("cancelled", "incomplete")
