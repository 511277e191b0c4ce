"""Tools that servers offer to a request, and for whom a list of them is kept."""

import asyncio
from typing import Any

import msgspec
import pytest

from service.errors import ApiError
from service.features.mcp.settings import McpConnection, OperatorServer
from service.features.mcp.shapes import McpDeclaration, declarations
from service.features.mcp.toolbox import Toolbox
from service.tools.port import ListedTool, ToolListing, ToolResult, ToolUnreachable

URL = "https://a.example/mcp"


class Stub:
    """A server that lists one tool, fails, or never answers, by what its label is."""

    def __init__(self, connection: McpConnection) -> None:
        self.label = connection.label
        self.listed = 0
        self.stopped = False
        self.closed = False

    async def list_tools(self) -> ToolListing:
        self.listed += 1
        if self.label == "silent":
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped = True
        if self.label == "away":
            raise ToolUnreachable("It is away.")
        return ToolListing((ListedTool("t", "", {"type": "object"}),))

    async def call(self, name: str, arguments: dict[str, Any], *, repeatable: bool = False) -> ToolResult:
        """Nothing calls it here."""
        raise AssertionError(name)

    async def close(self) -> None:
        self.closed = True


class Stubs:
    """A toolbox whose servers are stubs."""

    def __init__(self) -> None:
        self.opened: list[Stub] = []
        self.toolbox = Toolbox({}, (URL,), self.open, allowing="X")

    def open(self, connection: McpConnection, tenant: str) -> Stub:
        self.opened.append(Stub(connection))
        return self.opened[-1]


def declared(*labels: str, **members: Any) -> list[McpDeclaration]:
    """Declarations of servers with these labels."""
    tools = [
        {"type": "mcp", "server_label": label, "server_url": URL, "require_approval": "never", **members}
        for label in labels
    ]
    return declarations(msgspec.Raw(msgspec.json.encode(tools)), 16)


async def test_where_one_server_fails_the_others_are_asked_no_more() -> None:
    stubs = Stubs()
    with pytest.raises(ApiError, match=r"'away'.* It is away"):
        await stubs.toolbox.discover("tenant", declared("silent", "away", "fine"))

    silent, away, fine = stubs.opened
    assert silent.stopped
    assert (silent.closed, away.closed, fine.closed) == (True, True, True)


async def test_a_list_is_kept_for_a_tenant_and_for_what_signs_in_and_for_nobody_else() -> None:
    stubs = Stubs()
    for tenant, members in (
        ("a", {}),
        ("a", {}),
        ("b", {}),
        ("a", {"authorization": "key of a"}),
        ("a", {"authorization": "key of a"}),
        ("a", {"authorization": "another key"}),
        ("b", {"authorization": "key of a"}),
        ("a", {}),
    ):
        await stubs.toolbox.discover(tenant, declared("maths", **members))

    assert len(stubs.opened) == 5


@pytest.mark.parametrize(
    ("own", "asked", "asks"),
    [(None, "never", True), ("always", "never", True), ("never", "never", False), ("never", "always", True)],
)
async def test_what_the_operator_says_of_a_server_a_request_makes_only_stricter(
    own: Any, asked: str, asks: bool
) -> None:
    stubs, tool = Stubs(), {"type": "mcp", "server_label": "maths", "require_approval": asked}
    wanted = declarations(msgspec.Raw(msgspec.json.encode([tool])), 16)
    for allowed, shown in ((["t"], [asks]), (["other"], [])):
        server = OperatorServer(url=URL, require_approval=own, allowed_tools=allowed)
        found = await Toolbox({"maths": server}, (), stubs.open, allowing="X").discover("tenant", wanted)
        assert [each.approval for each in found.offers[0].tools] == shown


@pytest.mark.parametrize(("allow", "trusted"), [(("*",), False), (("*", URL), True)])
async def test_a_request_names_a_private_address_only_where_the_operator_did(
    allow: tuple[str, ...], trusted: bool
) -> None:
    toolbox = Toolbox({"maths": OperatorServer(url=URL)}, allow, Stubs().open, allowing="X")
    found = await toolbox.discover("tenant", declared("maths"))
    assert [each["trusted"] for each in msgspec.json.decode(found.connections)] == [trusted]
    with pytest.raises(ApiError, match="The operator configures this"):
        await toolbox.discover("tenant", declared("maths", server_url=None, headers={"X": "a"}))
