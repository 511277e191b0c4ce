"""A session with one MCP server, for one response: it is opened by the first who needs it and closed at its end.

The official client speaks the protocol, in both of its eras. What it doesn't bound is bounded here and below it
(guard.py): how long a step takes, how many pages a list has, and what an answer may weigh. Structured results are not
checked against the server's own schema, as the package would: that schema's regular expressions are a stranger's, and
would run on the event loop. A session lives in a task of its own, as the client must be left where it was entered.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, TypeVar, cast

import httpx2
import mcp_types as types
import msgspec
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from service.build import this_build
from service.responses.tools.guard import Backend, Transport
from service.responses.tools.port import (
    HttpFailure,
    ListedTool,
    Listing,
    ProtocolFailure,
    ToolLimits,
    ToolResult,
    Unreachable,
)
from service.responses.tools.results import result_of
from service.settings.mcp import Connection

logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)  # it logs what servers say, and tracebacks that quote it
logging.getLogger("client").setLevel(logging.CRITICAL + 1)

MAX_PAGES = 32
"""How many pages a list of tools may have."""

CONNECTIONS = 4
"""How many connections a session may have: a call, a notification, and what the server sends by itself."""

CLOSE_SECONDS = 2.0
"""How long the end of a session may take."""

KNOWN_ERAS = 1_024
"""Of how many URLs a process remembers in which era of the protocol they speak."""

UNREADABLE = ("Failed to parse JSON response", "Failed to parse SSE message")
"""How the package begins to say that it can't read an answer, before it quotes that."""

NOT_OF_THE_PROTOCOL = "Its answer is none of the protocol's."

T = TypeVar("T")


class _Era:
    """In which era of the protocol a server speaks, in the words of the package."""

    mode = "auto"


@lru_cache(maxsize=KNOWN_ERAS)
def _era(url: str) -> _Era:
    """What is known of a server, to be filled in."""
    return _Era()


class Session:
    """A session with one server. Its methods may be called by any task; `close` it in the end."""

    def __init__(self, connection: Connection, limits: ToolLimits) -> None:
        self._connection = connection
        self._limits = limits
        self._transport: Transport | None = None
        self._ready: asyncio.Future[Client] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def list_tools(self) -> Listing:
        """All tools of the server, and what it says of itself. Raises a ToolFailure."""
        async with _within(self._limits.list_seconds):
            client = await self._client()
            tools, instructions = list[ListedTool](), client.instructions or ""
            size, cursor = len(instructions), None
            for _ in range(MAX_PAGES):
                params = types.PaginatedRequestParams(cursor=cursor)
                page = await self._asked(lambda params=params: client.session.list_tools(params=params))
                found = list(map(_listed, page.tools))
                tools += found
                size += len(msgspec.json.encode(found))
                cursor = page.next_cursor
                if len(tools) > self._limits.tools:
                    raise Unreachable(f"It lists more than {self._limits.tools} tools.")
                if size > self._limits.list_bytes:
                    raise Unreachable(f"Its list of tools has more than {self._limits.list_bytes} bytes.")
                if not cursor:
                    return Listing(tuple(tools), instructions)
            raise Unreachable(f"Its list of tools has more than {MAX_PAGES} pages.")

    async def call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        """What a tool says. Raises a ToolFailure. Cancelled, it has told the server so."""
        async with _within(self._limits.call_seconds):
            client = await self._client()
            request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
            try:
                result = await self._asked(lambda: client.session.send_request(request, types.CallToolResult))
            except ProtocolFailure as failure:
                if failure.code != types.HEADER_MISMATCH:
                    raise
                await self._asked(lambda: client.session.list_tools())  # it wants headers that its list tells of
                result = await self._asked(lambda: client.session.send_request(request, types.CallToolResult))
        return result_of(result, self._limits.output_chars)

    async def close(self) -> None:
        """End the session."""
        self._closing.set()
        if self._task is not None and self._ready is not None and self._ready.done():
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        await self._end()

    async def _end(self) -> None:
        task, self._task, self._ready = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _client(self) -> Client:
        """The client, connected. Whoever comes first waits for that with all others; a session that has ended by
        itself is opened anew.
        """
        if self._ready is None or (self._task is not None and self._task.done()):
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._ready))
        return await asyncio.shield(self._ready)

    async def _run(self, ready: "asyncio.Future[Client]") -> None:
        connection, limits, era = self._connection, self._limits, _era(self._connection.url)
        self._transport = transport = Transport(Backend(anywhere=connection.trusted), limits, connections=CONNECTIONS)
        http = httpx2.AsyncClient(
            transport=transport,
            headers=[*connection.headers, ("user-agent", f"harmonium/{this_build().version}")],
            timeout=httpx2.Timeout(None, connect=limits.connect_seconds),
            max_redirects=0,
            trust_env=False,
        )
        try:
            async with http, Client(self._stream(http), mode=era.mode, cache=None) as client:
                era.mode = client.protocol_version if client.protocol_version in MODERN_PROTOCOL_VERSIONS else "legacy"
                ready.set_result(client)
                await self._closing.wait()
        except Exception as error:
            era.mode = "auto"
            if not ready.done():
                ready.set_exception(self._failure(error))
                ready.exception()  # whoever waits is told; nobody may have waited until now
        finally:
            if not ready.done():
                ready.cancel()

    def _stream(self, http: httpx2.AsyncClient) -> Any:
        return streamable_http_client(
            self._connection.url, http_client=http, max_sse_event_size=self._limits.answer_bytes
        )

    async def _asked(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the server answers. Raises a ToolFailure."""
        if self._transport is not None:
            self._transport.forget()
        try:
            return await ask()
        except Exception as error:
            failure = self._failure(error)
            if isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED:
                await self._end()  # whoever asks next opens another one
            raise failure from error

    def _failure(self, error: BaseException) -> Exception:
        """What went wrong, in words that a client may read: the server's own, or what is known of the connection."""
        while isinstance(error, BaseExceptionGroup):
            error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
        transport = self._transport
        if transport is not None and transport.failure is not None:
            return Unreachable(_sentence(transport.failure))
        if transport is not None and transport.status is not None:
            return HttpFailure(transport.status)
        if isinstance(error, MCPError) and error.message.startswith(UNREADABLE):
            return Unreachable(NOT_OF_THE_PROTOCOL)
        if isinstance(error, MCPError):
            return ProtocolFailure(error.code, error.message)
        if isinstance(error, ValidationError):
            return Unreachable(NOT_OF_THE_PROTOCOL)
        return Unreachable("The session with it ended.")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _listed(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    reads = bool(hints and hints.read_only_hint)
    return ListedTool(
        tool.name, tool.description or "", tool.input_schema, reads, reads or bool(hints and hints.idempotent_hint)
    )


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None, None]:
    """A time limit, as a ToolFailure."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Unreachable(f"It did not answer within {seconds:g} s.") from None
