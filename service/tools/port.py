"""The ports of tools: of servers, what one lists, what it answers, and how it fails; and of what runs those tools that
the model was trained with.

A conformance suite (tests/support/tools) defines what an adapter of a server must do.
"""

from typing import Any, Protocol

import msgspec

from service.api.outcome import HostedCall, Outcome
from service.api.tools.builtin import Builtin
from service.api.tools.callee import Hosted

MESSAGE_CHARS = 1_000
"""How much of a server's own words on what went wrong is kept."""


class ToolLimits(msgspec.Struct, frozen=True):
    """The bounds of a server: in seconds to connect, to start where it is a program, to list its tools and to answer a
    call; of an answer in bytes, in values of JSON and in events; of its list, in bytes and tools; of what a tool says
    in characters; and of a session in requests, those included with which the client answers the server.
    """

    connect_seconds: float = 5.0
    start_seconds: float = 10.0
    list_seconds: float = 15.0
    call_seconds: float = 60.0
    answer_bytes: int = 1 << 20
    answer_values: int = 10_000
    answer_events: int = 2_000
    list_bytes: int = 256 << 10
    output_chars: int = 32_000
    tools: int = 128
    requests: int = 1_000


class Runner(Protocol):
    """Runs the calls of one response."""

    async def call(self, call: HostedCall) -> Outcome:
        """Run a call; what became of it, also where it failed. Cancelled, it has stopped the tool as far as it can."""
        ...

    async def aclose(self) -> None:
        """No more calls come."""
        ...


class BackEnd(Protocol):
    """What runs a tool that the model was trained with. Of a call that comes again, as its worker died, it gives the
    outcome that there was, or makes it again where that does no harm.
    """

    @property
    def builtin(self) -> Builtin:
        """The tool, as it is declared and shown."""
        ...

    @property
    def usable(self) -> bool:
        """Whether it can be declared: what it needs is there."""
        ...

    async def bind(self, tenant: str, tool: Hosted, before: str | None) -> str:
        """Where the calls of a response go (`Hosted.server`). `before` is where those of its conversation last went.
        Raises ApiError, StoreError.
        """
        ...

    def run(self, tenant: str) -> Runner:
        """Whoever runs the calls of one response of a tenant."""
        ...


class ListedTool(msgspec.Struct, frozen=True):
    """A tool as its server lists it. Its `schema` is a JSON Schema of its arguments. One that `reads` changes nothing,
    and one that is `repeatable` changes nothing more when it is called again.
    """

    name: str
    description: str
    schema: dict[str, Any]
    reads: bool = False
    repeatable: bool = False


class Listing(msgspec.Struct, frozen=True):
    """The tools of a server, and what it says of itself."""

    tools: tuple[ListedTool, ...]
    instructions: str = ""


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool says, as one text. One that `failed` says why. `whole` is its result as data: JSON, where the tool
    gives any, or else its only text as it is.
    """

    text: str
    failed: bool = False
    whole: bytes = b""


class ToolFailure(Exception):
    """A server could not be asked, or gave no answer of the protocol. Its text may be shown to the client."""

    error: dict[str, Any]
    """The error of the item of a call."""


class Unreachable(ToolFailure):
    """It can't be reached, takes too long, or says too much."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.error = {"type": "mcp_protocol_error", "code": -32000, "message": why}


class HttpFailure(ToolFailure):
    """It answers with an HTTP status that says no."""

    def __init__(self, status: int) -> None:
        why = {
            401: "It wants another authorization (HTTP 401).",
            403: "It forbids this (HTTP 403).",
            404: "There is no such server at this URL, or its session ended (HTTP 404).",
        }.get(status, f"It redirects elsewhere (HTTP {status})." if status < 400 else f"It answers with HTTP {status}.")
        super().__init__(why)
        self.status = status
        self.error = {"type": "http_error", "code": status, "message": why}


class ProtocolFailure(ToolFailure):
    """It answers with an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        message = message[:MESSAGE_CHARS]
        super().__init__(message)
        self.code = max(min(code, 2**31), -(2**31))
        self.error = {"type": "mcp_protocol_error", "code": self.code, "message": message}


class Heard:
    """What is known of a connection beside what the server says: the package tells none of it."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.failure: str | None = None
        """Of what was asked last, the status that said no, and why nothing, or not all, was read."""
        self.named = False
        """Whether the session has a name, which the server gave it."""
        self.answered = False
        """Whether it ever answered, and did not say no."""

    def forget(self) -> None:
        """Another request begins, of which nothing is known yet."""
        self.status = self.failure = None


class ToolServer(Protocol):
    """A session with a server of tools."""

    async def list_tools(self) -> Listing:
        """All of its tools. Raises a ToolFailure."""
        ...

    async def call(self, name: str, arguments: dict[str, Any], *, repeatable: bool = False) -> ToolResult:
        """What a tool says. One that is `repeatable` may be called again where nobody knows whether it was. Raises a
        ToolFailure. Cancelled, it has told the server so, where it could.
        """
        ...

    async def close(self) -> None:
        """End the session."""
        ...
