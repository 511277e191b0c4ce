"""How often the store is asked because of a call of a tool."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.engine.port import Generation
from service.sandbox.local import LocalSandbox
from service.settings.settings import Settings
from tests.responses.tools.test_code_interpreter import AUTO, code
from tests.responses.tools.test_mcp_responses import ADD, call, server
from tests.responses.tools.test_web_search import SEARCHED
from tests.support.engine.scripted import Script
from tests.support.sandbox.sandboxes import bare
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.store.counting import counting
from tests.support.tools.server import McpServer
from tests.support.waiting import until

SECONDS = 20.0
MOST = 2
"""How often a call may ask the store: once so that it is in the log, and once for its outcome."""

FEW, MANY = 2, 10
"""Calls of a response, of which the difference counts: whatever it takes besides is the same."""

KINDS = ("mcp_call", "web_search_call", "code_interpreter_call")


@pytest.fixture
def sandbox() -> Iterator[LocalSandbox]:
    with bare() as made:
        yield made


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("kind", ["server", "search", "code"])
async def test_a_call_asks_the_store_twice_at_most(
    settings: Settings, fixture: McpServer, sandbox: LocalSandbox, tmp_path: Path, kind: str, background: bool
) -> None:
    (tmp_path / "tides.md").write_text("# Tides\n\nHigh water.")
    given = settings.model_copy(
        update={"mcp_allow": (fixture.url,), "search": "folder", "search_folder": str(tmp_path)}
    )
    called = {"server": call("add", ADD), "search": SEARCHED, "code": code("6 * 7")}[kind]
    tool: Any = {"server": server(fixture), "search": {"type": "web_search"}, "code": AUTO}[kind]
    answering = asyncio.Event()

    def last(generation: Generation) -> Script:
        answering.set()
        return [answer("So.")]

    engine = scripted(*[[called]] * FEW, last, *[[called]] * MANY, last)
    asked: list[int] = []
    async with serving(given, engine, sandbox=sandbox) as inside, inside.client() as client:
        for number in (FEW, MANY):
            answering.clear()
            async with counting(settings.redis_url, settings.key_prefix) as counted:
                made = await client.responses.create(model=MODEL, input="Go.", tools=[tool], background=background)
                async with asyncio.timeout(SECONDS):
                    await answering.wait()
            await until(
                lambda id=made.id: client.responses.retrieve(id), wanted=lambda each: each.status == "completed"
            )
            ended = await client.responses.retrieve(made.id)
            assert sum(item.type in KINDS for item in ended.output) == number
            asked.append(counted.about(made.id.removeprefix("resp_"), "containers:", b"contnr".hex()))

    assert (asked[1] - asked[0]) / (MANY - FEW) <= MOST
