"""The ports of tools: of a kind of tool that the service runs, with its runner, its approvals and its citations; and of
servers, with their lists, answers and failures.

A conformance suite (tests/support/tools) defines the duties of an adapter of a server.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from service.api.outcome import HostedCall, Outcome, ToldPicture
from service.api.tools.builtin import Builtin
from service.api.tools.callee import Hosted, HostedKind
from service.api.tools.offer import McpOffer, Routed
from service.entrance import Entry
from store.turn import StoredMessage

MESSAGE_CHARS = 1_000
"""The characters of a server's own words on a failure that are kept."""


class ToolLimits(msgspec.Struct, frozen=True):
    """The bounds of a server: in seconds to connect, to start where it is a program, to list its tools once it runs and
    to answer a call; of an answer in bytes, in values of JSON and in events; of its list in bytes and tools; of a
    tool's text in characters; and of a session in requests, the client's answers to the server included.
    """

    connect_seconds: float = 5.0
    start_seconds: float = 30.0
    list_seconds: float = 15.0
    call_seconds: float = 60.0
    answer_bytes: int = 1 << 20
    answer_values: int = 10_000
    answer_events: int = 2_000
    list_bytes: int = 256 << 10
    output_chars: int = 32_000
    tools: int = 128
    requests: int = 1_000


Call = Callable[[HostedCall], Awaitable[Outcome]]


class Runner(Protocol):
    """Runs the calls of one response."""

    async def call(self, call: HostedCall) -> Outcome:
        """Run a call. Returns its outcome, also if it failed. Cancelled, it has stopped the tool as far as it can."""
        ...

    async def aclose(self) -> None:
        """Let go of all: no more calls come."""
        ...


class ToolCatalog(msgspec.Struct, frozen=True):
    """The offers, lists and connections of a request's servers. One kind of tool at most has connections."""

    offers: tuple[McpOffer, ...] = ()
    lists: tuple[tuple[str, str, bytes], ...] = ()
    """For each server its label, the mark of its connection, and its tools as its item shows them."""

    connections: bytes = b""
    """The connections that the request itself named, as JSON, with their secrets; empty where it named none."""

    routed: tuple[Routed, ...] = ()
    """The types of tools that servers stand for."""

    def __add__(self, other: "ToolCatalog") -> "ToolCatalog":
        return ToolCatalog(
            self.offers + other.offers,
            self.lists + other.lists,
            self.connections or other.connections,
            self.routed + other.routed,
        )


class Tool:
    """One kind of tool that the service runs, or several that are run alike. By default it asks nobody anything, and
    keeps nothing in a conversation.
    """

    kinds: tuple[HostedKind, ...] = ()
    """The kinds of its calls."""
    types: tuple[str, ...] = ()
    """The types by which a request declares it, where it is looked up before tools are read."""
    builtin: Builtin | None = None
    """The tool, as it is declared and shown, where the model was trained with it. A call of such a one may come again,
    as its worker died: it returns the earlier outcome, or makes the call again where that does no harm."""

    declarations: Sequence[Mapping[str, Any]] = ()
    """The declarations of its tools, as requests have them, where no more has to be said."""

    @property
    def usable(self) -> bool:
        """Whether the tool can be declared: all that it needs is there."""
        return True

    async def look_up(
        self, tenant: str, tools: msgspec.Raw, max_tools: int, may_begin: Callable[[], Awaitable[None]]
    ) -> ToolCatalog:
        """The catalog of the tools that a request declares of it, once `may_begin` has refused nothing; it is called
        where a server is asked. Raises ApiError, and as `may_begin`.
        """
        return ToolCatalog()

    def names_place(self, tool: Hosted) -> bool:
        """Whether its request names the place of a tool's calls."""
        return False

    async def bind(self, entry: Entry, tool: Hosted, before: str | None) -> str:
        """The place of a response's calls (`Hosted.server`). `before` is the container of its conversation. Raises
        ApiError, StoreError.
        """
        return tool.server

    def displays(self, notes: Sequence[StoredMessage]) -> tuple[Any, ...]:
        """Its displays (`Outcome.display`) in a conversation, from their notes, the oldest first."""
        return ()

    def run(self, tenant: str, connections: bytes) -> Runner:
        """The runner of one response's calls. `connections` are those of its catalog."""
        raise NotImplementedError


class ListedTool(msgspec.Struct, frozen=True):
    """A tool as its server lists it. Its `schema` is a JSON Schema of its arguments. One that `reads` changes nothing,
    and one that is `repeatable` changes nothing more when it is called again.
    """

    name: str
    description: str
    schema: dict[str, Any]
    reads: bool = False
    repeatable: bool = False


class ToolListing(msgspec.Struct, frozen=True):
    """The tools of a server, and its own instructions."""

    tools: tuple[ListedTool, ...]
    instructions: str = ""


class ToolResult(msgspec.Struct, frozen=True):
    """The answer of a tool, as one text. The text of a `failed` one is the reason. `whole` is the result as data: JSON,
    where the tool gives any, or else its only text as it is. `pictures` are those whose lines are in the text.
    """

    text: str
    failed: bool = False
    whole: bytes = b""
    pictures: tuple[ToldPicture, ...] = ()


class ToolFailure(Exception):
    """A server could not be asked, or gave no answer of the protocol. Its text may be shown to the client."""

    error: dict[str, Any]
    """The error of the item of a call."""


class ToolUnreachable(ToolFailure):
    """A server can't be reached, takes too long, or says too much."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.error = {"type": "mcp_protocol_error", "code": -32000, "message": why}


class HttpFailure(ToolFailure):
    """A server answers with an HTTP status of a failure."""

    def __init__(self, status: int) -> None:
        why = {
            401: "It rejects the authorization (HTTP 401).",
            403: "It forbids this (HTTP 403).",
            404: "There is no such server at this URL, or its session ended (HTTP 404).",
        }.get(status, f"It redirects (HTTP {status})." if status < 400 else f"It answers with HTTP {status}.")
        super().__init__(why)
        self.status = status
        self.error = {"type": "http_error", "code": status, "message": why}


class ProtocolFailure(ToolFailure):
    """A server answers with an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        message = message[:MESSAGE_CHARS]
        super().__init__(message)
        self.code = max(min(code, 2**31), -(2**31))
        self.error = {"type": "mcp_protocol_error", "code": self.code, "message": message}


class Heard:
    """The facts about a connection that the package doesn't tell."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.failure: str | None = None
        """Of the last request: the status of a refusal, and the reason why nothing, or not all, was read."""
        self.named = False
        """Whether the session has a name, which the server gave it."""
        self.answered = False
        """Whether the server ever answered without a refusal."""

    def forget(self) -> None:
        """Forget the last request, as another one begins."""
        self.status = self.failure = None


class ToolServer(Protocol):
    """A session with a server of tools."""

    async def list_tools(self) -> ToolListing:
        """All of its tools. Raises a ToolFailure."""
        ...

    async def call(self, name: str, arguments: dict[str, Any], *, repeatable: bool = False) -> ToolResult:
        """The answer of a tool. A `repeatable` one may be called again where nobody knows whether it was called. Raises
        a ToolFailure. Cancelled, it has told the server so, where it could.
        """
        ...

    async def close(self) -> None: ...
