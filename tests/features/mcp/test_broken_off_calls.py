"""Calls of servers' tools and of code that are broken off, in every way that a response can be: each ends at once, its
item is incomplete, and what code has done until then stays.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest

from service.process import Settings
from tests.features.mcp.test_mcp_responses import call, server
from tests.features.python.test_code_interpreter import OUTPUTS, code
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.tools.server import McpServer
from tests.support.waiting import until

SOON_SECONDS = 6.0
"""Within what a call has ended that would go on for 20 s at least, on cores that others share."""

LIMIT_SECONDS = 4.0
ENDLESS = "n = 1\nopen('/mnt/data/began', 'w').close()\nwhile True: n += 1"
ADDRESS = "/v1/responses"
CALLS = {"server": call("send_mail", '{"to":"a"}'), "code": code(ENDLESS)}
"""How the model calls what works without end."""


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


class World(NamedTuple):
    """A running service, the body of a request that may use one tool, and whether a call of that has begun."""

    inside: Inside
    body: dict[str, Any]
    began: Callable[[], Awaitable[bool]]


async def ended(world: World, id: str) -> dict[str, Any]:
    """A response once it has ended, which is soon."""
    async with world.inside.http() as http:

        async def get() -> dict[str, Any]:
            found = await http.get(f"{ADDRESS}/{id}")
            return found.json() if found.status_code == 200 else {"status": "queued"}

        return await until(get, SOON_SECONDS, wanted=lambda each: each["status"] not in ("queued", "in_progress"))


async def hang_up_a_stream(world: World) -> dict[str, Any]:
    """The client of a stream is gone."""
    body = world.body | {"stream": True}
    async with world.inside.http() as http, http.stream("POST", ADDRESS, json=body) as stream:
        lines = stream.aiter_lines()
        while not (line := await anext(lines)).startswith("data: "):
            pass
        await until(world.began)
    return await ended(world, json.loads(line.removeprefix("data: "))["response"]["id"])


async def cancel(world: World) -> dict[str, Any]:
    """A response in the background is cancelled."""
    async with world.inside.http() as http:
        id = (await http.post(ADDRESS, json=world.body | {"background": True})).json()["id"]
        await until(world.began)
        assert (await http.post(f"{ADDRESS}/{id}/cancel")).status_code == 200
    return await ended(world, id)


async def close_a_socket(world: World) -> dict[str, Any]:
    async with socket(world.inside.url) as ws:
        await ws.send(**world.body)
        id = (await ws.next())["response"]["id"]
        await until(world.began)
        ws.connection.transport.abort()
    return await ended(world, id)


async def wait_for_the_limit(world: World) -> dict[str, Any]:
    """The time of a response in the foreground is up."""
    async with world.inside.http() as http:
        stream = await http.post(ADDRESS, json=world.body | {"stream": True})
    last = [line for line in stream.text.split("\n") if line.startswith("data: {")][-1]
    return json.loads(last.removeprefix("data: "))["response"]


Way = Callable[[World], Awaitable[dict[str, Any]]]
WAYS: dict[Way, str] = {
    hang_up_a_stream: "cancelled",
    cancel: "cancelled",
    close_a_socket: "cancelled",
    wait_for_the_limit: "failed",
}


def broken_off(response: dict[str, Any]) -> dict[str, Any]:
    (item,) = [item for item in response["output"] if item["type"] in ("mcp_call", "code_interpreter_call")]
    return item


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("kind", CALLS)
async def test_a_call_ends_at_once_with_its_response(
    settings: Settings, remote: SandboxProcess, fixture: McpServer, kind: str, way: Way
) -> None:
    fixture.hold()
    began, told = fixture.began("send_mail"), fixture.cancelled("send_mail")
    limit = {"request_seconds": LIMIT_SECONDS} if way is wait_for_the_limit else {}
    given = {"mcp_allow": (fixture.url,), "sandbox": remote.listen, **limit}
    engine = scripted([CALLS[kind]], [code("n > 0")], [answer("So.")])
    async with serving(settings.model_copy(update=given), engine) as inside, inside.client() as client:
        container = (await client.containers.create(name="endless")).id
        tool = {"type": "code_interpreter", "container": container} if kind == "code" else server(fixture)

        async def is_under_way() -> bool:
            if kind == "server":
                return fixture.began("send_mail") > began
            return bool((await client.containers.files.list(container)).data)

        body = {"model": MODEL, "input": "Go.", "tools": [tool], "include": OUTPUTS}
        response = await way(World(inside, body, is_under_way))
        item = broken_off(response)
        assert (response["status"], item["status"]) == (WAYS[way], "incomplete")
        if kind == "server":
            assert "not known" in item["error"]["content"][0]["text"]
            await until(lambda: fixture.cancelled("send_mail") > told, SOON_SECONDS, "the server isn't told")
        else:
            assert "not known" in item["outputs"][0]["logs"]
            async with inside.http() as http, asyncio.timeout(SOON_SECONDS):
                then = (await http.post(ADDRESS, json=body)).json()
            assert [output["logs"] for output in broken_off(then)["outputs"]] == ["True\n"]
