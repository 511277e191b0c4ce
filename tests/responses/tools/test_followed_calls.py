"""Whoever follows a response by another replica sees a call when it begins, not when it has ended."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from service.settings.settings import Settings
from tests.responses.tools.test_broken_off_calls import ADDRESS, SOON_SECONDS, body, broken_off, ended, world
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.service.inside import answer, scripted, serving
from tests.support.tools.server import McpServer
from tests.support.waiting import until

SAID = {
    "server": ("response.mcp_call.in_progress", "response.mcp_call_arguments.done"),
    "search": ("response.web_search_call.in_progress", "response.web_search_call.searching"),
    "code": ("response.code_interpreter_call.in_progress", "response.code_interpreter_call.interpreting"),
}
"""What is said of a call before it has an outcome."""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxProcess]:
    """A sandbox for all tests of this file."""
    with folder_for_all() as shared:
        process = SandboxProcess(tmp_path_factory.mktemp("sandbox"), shared)
        try:
            yield process
        finally:
            process.kill()


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
