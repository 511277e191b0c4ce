"""A session with one MCP server, for one response: the first call opens it, and the response's end closes it.

The official client speaks the protocol, in both of its eras. This file and transports.py bound the rest: the time of
a step, the pages of a list, and the weight of an answer. Structured results are not checked against the server's own
schema, as the package would: that schema's regular expressions are a stranger's, and would run on the event loop. A
session lives in a task of its own, as the client must be left where it was entered.
"""

import asyncio
import logging
import re
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, TypeVar, cast

import httpx2
import mcp_types as types
import msgspec
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from service.api.content import head_of
from service.api.outcome import ToldPicture
from service.build import this_build
from service.features.mcp.redaction import Redaction
from service.features.mcp.settings import McpConnection, mark_of
from service.features.mcp.toolbox import Opener
from service.features.mcp.transports import CheckedBackend, Pipes, Processes, Transport
from service.ssrf import Judge, is_public
from service.tools.port import (
    MESSAGE_CHARS,
    Heard,
    HttpFailure,
    ListedTool,
    ProtocolFailure,
    ToolFailure,
    ToolLimits,
    ToolListing,
    ToolResult,
    ToolUnreachable,
)

for name in ("mcp", "client", "httpx2", "httpcore2"):  # they log what servers say, and URLs, which may have keys
    logging.getLogger(name).setLevel(logging.CRITICAL + 1)

MAX_PAGES = 32
"""The most pages of a list of tools."""

CONNECTIONS = 4
"""The most connections of a session: for a call, a notification, and the server's own messages."""

MOST_IMAGES = 100
"""The most pictures of an answer that are looked for in its text: each search reads all of it."""

CLOSE_SECONDS = 2.0
"""The most time for the end of a session."""

KNOWN_ERAS = 1_024
"""The most servers whose era of the protocol a process remembers."""

UNREADABLE = ("Failed to parse JSON response", "Failed to parse SSE message")
"""The beginnings of the package's errors on an unreadable answer, before it quotes that."""

MADE_UP = ("Session terminated", "Not Found", "Server returned an error response")
"""The package's own errors for an answer with the status of a failure and no error of the protocol."""

NO_SESSION = re.compile(
    r"((bad request|not found|unauthorized|error): )?"
    r"(session( with id)?( [\w-]{8,64})? (not found|does not exist|(has )?(been )?(terminated|expired))"
    r"|(no|no valid|missing|unknown|invalid|invalid or expired) (mcp[ -])?session([ -]?id)?( header)?( provided)?"
    r"|(mcp-)?session[ -]?id( header)? (is )?(required|missing|must be a single value)( in mcp-session-id header)?"
    r"|(server )?not initialized)(: [\w-]{1,64})?\.?",
    re.IGNORECASE,
)
"""The whole messages of servers that know no such session, in the words of the official SDKs and of those like them. A
tool may have sessions of another kind, so a longer message is taken for the tool's own."""

T = TypeVar("T")

_ERAS: dict[str, str] = {}
"""The era of the protocol that a server speaks, in the words of the package, by the mark of its connection."""


class _Forgotten(Exception):
    """The server knows no such session, or speaks in another era now: it did nothing with the request."""

    def __init__(self, failure: ToolFailure) -> None:
        self.failure = failure


async def pass_turnstile(turnstile: asyncio.Lock) -> None:
    """Let sessions begin a step one at a time, each after a round of the event loop: a hundred of them at the same
    moment would hold the loop up for most of a second.
    """
    async with turnstile:
        await asyncio.sleep(0)


@dataclass(eq=False)
class ToolSession:
    """A session with one server. Its methods may be called by any task; `close` it in the end."""

    connection: McpConnection
    limits: ToolLimits
    place: Callable[[], AbstractContextManager[None]] = nullcontext
    """Taken by a program as long as it runs. Raises ToolUnreachable where none is free."""
    turnstile: asyncio.Lock = field(default_factory=asyncio.Lock)
    """All sessions of a process have one."""
    may_reach: Judge = is_public
    """Judges addresses of servers that the operator didn't name."""

    def __post_init__(self) -> None:
        self._mark = mark_of(self.connection)
        self._redaction = Redaction(self.connection)
        self._heard: Heard | None = None
        self._ready: asyncio.Future[Client] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def list_tools(self) -> ToolListing:
        """All tools of the server, and its own instructions. Raises a ToolFailure."""
        starts = self.limits.start_seconds if self.connection.program is not None else 0
        async with self._within(starts + self.limits.list_seconds):
            return self._redaction.listing(await self._twice(self._list))

    async def call(self, name: str, arguments: dict[str, Any], *, repeatable: bool = False) -> ToolResult:
        """See the port. Cancelled, it has told the server so."""
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=name, arguments=arguments))
        async with self._within(self.limits.call_seconds):
            result = await self._twice(partial(self._call, request, repeatable))
        return result_of(result, self._redaction, self.limits.output_chars)

    async def close(self) -> None:
        """End the session."""
        self._closing.set()
        if self._task is not None and self._ready is not None and self._ready.done():
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
        await self._end()

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncGenerator[None, None]:
        """A time limit, as a ToolFailure. It ends a program that is busy for longer: that would hear no requests."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            if self.connection.program is not None:
                await self._end()
            raise ToolUnreachable(f"It did not answer within {seconds:g} s.") from None

    async def _list(self, client: Client) -> ToolListing:
        tools, instructions = list[ListedTool](), client.instructions or ""
        size, cursor = len(instructions), None
        for _ in range(MAX_PAGES):
            params = types.PaginatedRequestParams(cursor=cursor)
            page = await self._ask(client, partial(client.session.list_tools, params=params))
            found = list(map(_listed_tool, page.tools))
            tools += found
            size += len(msgspec.json.encode(found))
            cursor = page.next_cursor
            if len(tools) > self.limits.tools:
                raise ToolUnreachable(f"It lists more than {self.limits.tools} tools.")
            if size > self.limits.list_bytes:
                raise ToolUnreachable(f"Its list of tools has more than {self.limits.list_bytes} bytes.")
            if not cursor:
                return ToolListing(tuple(tools), instructions)
        raise ToolUnreachable(f"Its list of tools has more than {MAX_PAGES} pages.")

    async def _call(self, request: types.CallToolRequest, repeatable: bool, client: Client) -> types.CallToolResult:
        send = partial(client.session.send_request, request, types.CallToolResult)
        try:
            return await self._ask(client, send, repeatable)
        except ProtocolFailure as failure:
            refused = repeatable or (self._heard is not None and self._heard.status == 400)
            if failure.code != types.HEADER_MISMATCH or not refused:
                raise
        await self._ask(client, client.session.list_tools)  # the server wants headers that its list names
        return await self._ask(client, send, repeatable)

    async def _twice(self, step: Callable[[Client], Awaitable[T]]) -> T:
        """Take a step, and once more in a new session where the server has forgotten this one. Raises a ToolFailure."""
        try:
            return await step(await self._client())
        except _Forgotten:
            pass
        try:
            return await step(await self._client())
        except _Forgotten as again:
            raise again.failure from None

    async def _end(self) -> None:
        task, self._task, self._ready = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _client(self) -> Client:
        """The client, connected: once for all that wait. A session that has ended by itself is opened anew, and so is
        that of a program that ended, or said too much, between two requests.
        """
        over = self.connection.program is not None and self._heard is not None and self._heard.failure is not None
        if over and self._ready is not None and self._ready.done():
            await self._end()
        if self._ready is None or (self._task is not None and self._task.done()):
            self._ready = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._ready))
        return await asyncio.shield(self._ready)

    async def _run(self, ready: "asyncio.Future[Client]") -> None:
        known = self._mark in _ERAS
        try:
            try:
                await self._open(ready)
            except Exception as error:
                _ERAS.pop(self._mark, None)
                if ready.done() or not known or not isinstance(_innermost(error), MCPError):
                    raise
                await self._open(ready)  # the server may speak in another era now
        except Exception as error:
            if not ready.done():
                ready.set_exception(self._failure(error))
                ready.exception()  # those that wait are told; nobody may have waited until now
        finally:
            if not ready.done():
                ready.cancel()

    async def _open(self, ready: "asyncio.Future[Client]") -> None:
        """Connect, and stay connected until the session is to close; a program has a time limit to start."""
        await pass_turnstile(self.turnstile)
        async with AsyncExitStack() as stack:
            client = Client(await self._streams(stack), mode=_ERAS.get(self._mark, "auto"), cache=None)
            seconds = self.limits.start_seconds if self.connection.program is not None else None
            try:
                async with asyncio.timeout(seconds):
                    await stack.enter_async_context(client)
            except TimeoutError:
                raise ToolUnreachable(f"It did not start within {seconds:g} s.") from None
            if len(_ERAS) >= KNOWN_ERAS:
                _ERAS.clear()
            version = client.protocol_version
            _ERAS[self._mark] = version if version in MODERN_PROTOCOL_VERSIONS else "legacy"
            ready.set_result(client)
            await self._closing.wait()

    async def _streams(self, stack: AsyncExitStack) -> Any:
        """The streams of messages: of HTTP, or the pipes of a program, which takes a place."""
        connection, limits = self.connection, self.limits
        if connection.program is not None:
            stack.enter_context(self.place())
            self._heard = pipes = Pipes(connection, connection.program, limits, self._redaction)
            return pipes.streams()
        backend = CheckedBackend(anywhere=connection.trusted, may_reach=self.may_reach)
        self._heard = transport = Transport(backend, limits, connections=CONNECTIONS)
        http = httpx2.AsyncClient(
            transport=transport,
            headers=[*connection.headers, ("user-agent", f"harmonium/{this_build().version}")],
            timeout=httpx2.Timeout(None, connect=limits.connect_seconds),
            max_redirects=0,
            trust_env=False,
        )
        await stack.enter_async_context(http)
        return streamable_http_client(connection.url, http_client=http, max_sse_event_size=limits.answer_bytes)

    async def _ask(self, client: Client, ask: Callable[[], Awaitable[T]], repeatable: bool = True) -> T:
        """The server's answer. Raises a ToolFailure, or _Forgotten."""
        await pass_turnstile(self.turnstile)
        if self._heard is not None:
            self._heard.forget()
        try:
            return await ask()
        except Exception as error:
            failure = self._failure(error)
            forgotten = self._is_forgotten(error, repeatable)
            if forgotten or (isinstance(error, MCPError) and error.code == types.CONNECTION_CLOSED):
                if self._ready is not None and self._ready.done() and self._ready.result() is client:
                    await self._end()  # the next request opens another one
                _ERAS.pop(self._mark, None)
            raise _Forgotten(failure) if forgotten else failure from error

    def _is_forgotten(self, error: BaseException, repeatable: bool) -> bool:
        """Whether the server did nothing with a request, as it knows no such session, or no such era. It says so by the
        protocol's own error for it, by an error with HTTP's 400, or by a 404 for a session that has a name. For the
        first request in an era that was only remembered, either status is enough.

        Gateways give these statuses to an exception of a tool as well, which comes after its effect. So for a call
        that is not `repeatable`, a status counts only without a body of the protocol, or with one that says this and
        nothing else.
        """
        heard = self._heard
        if not isinstance(error, MCPError) or heard is None:
            return False
        if error.code in (types.INVALID_PARAMS, types.HEADER_MISMATCH):
            return False
        if not repeatable and heard.status in (400, 404) and error.message not in MADE_UP:
            return error.code == types.UNSUPPORTED_PROTOCOL_VERSION or bool(NO_SESSION.fullmatch(error.message))
        if heard.status == 404:
            return heard.named or (repeatable and not heard.answered)
        if not repeatable:
            return False
        refused = heard.status == 400 and not (heard.answered and error.message in MADE_UP)
        return refused or error.code == types.UNSUPPORTED_PROTOCOL_VERSION

    def _failure(self, error: BaseException) -> ToolFailure:
        """The failure in words that a client may read: the server's own, or the facts about the connection."""
        error, heard = _innermost(error), self._heard
        if isinstance(error, ToolFailure):
            return error
        if heard is not None and heard.failure is not None:
            return ToolUnreachable(f"{heard.failure[:1].upper()}{heard.failure[1:].rstrip('.')}.")
        said = isinstance(error, MCPError) and error.message not in MADE_UP
        if heard is not None and heard.status is not None and not (said and heard.status in (400, 404)):
            return HttpFailure(heard.status)
        unreadable = isinstance(error, MCPError) and error.message.startswith(UNREADABLE)
        if unreadable or isinstance(error, ValidationError):
            return ToolUnreachable("Its answer violates the protocol.")
        if isinstance(error, MCPError):
            return ProtocolFailure(error.code, self._redaction.beginning(error.message, MESSAGE_CHARS))
        return ToolUnreachable("The session with it ended.")


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    return error


def opener_of(limits: ToolLimits, processes: Processes, may_reach: Judge) -> Opener:
    """The opener of sessions within these limits, which give way to each other."""
    turnstile = asyncio.Lock()

    def open_session(connection: McpConnection, tenant: str) -> ToolSession:
        return ToolSession(connection, limits, partial(processes.place, tenant), turnstile, may_reach)

    return open_session


def _listed_tool(tool: types.Tool) -> ListedTool:
    hints = tool.annotations
    reads = bool(hints and hints.read_only_hint)
    return ListedTool(
        tool.name, tool.description or "", tool.input_schema, reads, reads or bool(hints and hints.idempotent_hint)
    )


def result_of(result: types.CallToolResult, redaction: Redaction, chars: int) -> ToolResult:
    """The text of a result, of at most so many characters and a few."""
    parts = [_text(part) for part in result.content]
    whole = parts[0].encode() if len(parts) == 1 else b""
    if result.structured_content is not None:
        whole = msgspec.json.encode(result.structured_content)
        parts = parts or [whole.decode()]
    text = _shorten("\n".join(parts), redaction, chars)
    return ToolResult(text, result.is_error, redaction.data(whole), tuple(_pictures(result, text)))


def _pictures(result: types.CallToolResult, text: str) -> Iterator[ToldPicture]:
    """The pictures of a result whose lines stand in its text. One that can't be read is a line and no more."""
    read, images = 0, (part for part in result.content if isinstance(part, types.ImageContent))
    for part in islice(images, MOST_IMAGES):
        if (at := text.find(line := _text(part), read)) < 0:
            continue
        read = at + len(line)
        with suppress(ValueError):
            data = b64decode(part.data, validate=True)
            head_of(data)
            yield ToldPicture(data, at, len(line))


def _text(part: types.ContentBlock) -> str:
    match part:
        case types.TextContent():
            return part.text
        case types.ImageContent() | types.AudioContent():
            return f"[{part.mime_type}, {len(part.data) * 3 // 4:,} bytes]"
        case types.ResourceLink():
            return f"[{part.name}]({part.uri})"
        case types.EmbeddedResource():
            held = part.resource
            if isinstance(held, types.TextResourceContents):
                return held.text
            return f"[{held.uri}, {len(held.blob) * 3 // 4:,} bytes]"


def _shorten(text: str, redaction: Redaction, chars: int) -> str:
    """The text without secrets. Where it is longer than that, its middle is left out."""
    if len(text) <= chars:
        return redaction.text(text)
    half = chars // 2
    left_out = len(text) - 2 * half
    head, tail = redaction.beginning(text, half), redaction.end(text, half)
    return f"{head}\n[{left_out:,} characters left out]\n{tail}"
