"""All tools of a service: which of them a request asks, and who makes its calls."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from service.api.outcome import HostedCall, Outcome, display_note
from service.api.tools.builtin import callees
from service.api.tools.callee import Hosted, HostedKind
from service.api.tools.offer import McpOffer
from service.tools.hosted import HostedTools
from service.tools.port import Runner, Tool, ToolCatalog
from store.turn import StoredMessage


class Told(Tool):
    """A tool that tells what it was asked, and whose calls say its name."""

    def __init__(self, kind: HostedKind, *types: str) -> None:
        self.kinds, self.types = (kind,), types
        self.asked: list[str] = []

    async def look_up(
        self, tenant: str, tools: msgspec.Raw, max_tools: int, may_begin: Callable[[], Awaitable[None]]
    ) -> ToolCatalog:
        self.asked.append("look_up")
        return ToolCatalog((McpOffer(self.kinds[0], "", (), ""),))

    def displays(self, notes: Any) -> tuple[Any, ...]:
        self.asked.append("displays")
        return tuple(msgspec.json.decode(note.name) for note in notes)

    def run(self, tenant: str, connections: bytes) -> Runner:
        self.asked.append("run")
        return self

    async def call(self, call: HostedCall) -> Outcome:
        return Outcome("completed", self.kinds[0])

    async def aclose(self) -> None:
        self.asked.append("closed")


async def _begins() -> None:
    """Nothing is refused."""


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        ([], []),
        ([{"type": "function", "name": "a"}], []),
        ([{"type": "mcp", "server_label": "a"}], ["mcp"]),
        ([{"type": "file_search"}, {"type": "mcp", "server_label": "a"}], ["mcp", "file_search"]),
    ],
)
async def test_a_request_asks_the_tools_that_it_declares_and_no_other(
    declared: list[dict[str, Any]], asked: list[str]
) -> None:
    each = [Told("mcp", "mcp"), Told("file_search", "file_search"), Told("browser")]
    found = await HostedTools(each).look_up("tenant", msgspec.Raw(msgspec.json.encode(declared)), 8, _begins)

    assert [offer.label for offer in found.offers] == asked
    assert [tool.kinds[0] for tool in each if tool.asked] == asked


async def test_a_call_goes_to_its_own_tool_and_the_others_begin_nothing() -> None:
    each = [Told("mcp"), Told("browser")]
    run = HostedTools(each).run("tenant")
    made = [await run.call(HostedCall("1", Hosted("", "open", True, kind, ""), "{}")) for kind in ("browser", "python")]
    await run.aclose()

    assert [(outcome.status, outcome.told) for outcome in made] == [
        ("completed", "browser"),
        ("failed", "Error: This process can't run python."),
    ]
    assert [tool.asked for tool in each] == [[], ["run", "closed"]]


def test_the_notes_of_a_tools_displays_come_back_to_it() -> None:
    each = [Told("python"), Told("browser")]
    notes: dict[str, list[StoredMessage]] = {"browser_display": [display_note("browser", ["a page"])]}
    shown = HostedTools(each).displays(
        (*callees("python", ""), *callees("browser", "")), lambda role: notes.get(role, [])
    )

    assert shown == (["a page"],)
    assert [tool.asked for tool in each] == [[], ["displays"]]
