"""The ways to MCP servers: connections that go where they may, programs, and answers that end where they must.

It stands below the `mcp` package, which bounds neither an answer in JSON nor the address behind a name. A host is
resolved once for each connection, and every address of it is judged. The connection goes to a judged address, even if
the name resolves to another one a moment later.

A server that is a program has one process for each session, which is spoken to by its standard input and output. The
package's own transport for these keeps a line of any length, searches it again with every piece of it, and hands on the
program's complaints. So the pipes are ours (decision 60), with the bounds that answers over HTTP have. A program is
always killed at the end of its session, with all processes that it began and that stayed in its group. Only an operator
names programs, never a request.

The values of a server's answer are counted before anything parses it: they cost time, even in a few bytes. The `mcp`
package checks each on the event loop, in some 5 µs, so 1 MiB of empty objects takes seconds. So they are counted as
the bytes come. A text is one value, with any content. Never parse.
"""

import asyncio
import logging
import os
import signal
import ssl
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, cast

import anyio
import httpcore2
import httpx2
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

from service.features.mcp.redaction import Redaction
from service.features.mcp.settings import McpConnection, Program
from service.logs import event
from service.shares import Share
from service.ssrf import NO_PUBLIC_ADDRESS, ForbiddenAddress, Judge, LookUp, is_public, look_up, public_addresses
from service.tools.port import Heard, ToolLimits, ToolUnreachable

logger = logging.getLogger(__name__)

MARKS = (b"{", b"[", b",")
"""The bytes before every value but the first of an answer; the name of a member, and its value, count as one."""

_NEITHER = bytes(set(range(256)) - set(b'"\n'))


class Weight:
    """Counts the values of one answer, which comes in parts. In an answer of `events`, it counts the events, and the
    values of each alone.
    """

    def __init__(self, values: int, events: int | None) -> None:
        """`values` and `events` are the most that an answer may have; `events` is None for an answer without any."""
        self._values = values
        self._events = events
        self._seen = 0
        self._begun = bytearray()
        """The event that isn't complete, or all of the answer."""
        self._held = b""
        """A carriage return at the end of a part, which is a line's end alone or with what comes next."""

    def refusal(self, part: bytes) -> str | None:
        """The reason to refuse the answer, if the events that this part completes are too much; else None."""
        unread, part = max(len(self._begun) - 1, 0), self._held + part
        self._held = b"\r" if part.endswith(b"\r") else b""
        self._begun += part.removesuffix(b"\r").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = -1 if self._events is None else self._begun.rfind(b"\n\n", unread)
        if self._events is None or end < 0:
            return None
        complete = bytes(self._begun[:end])
        del self._begun[: end + 2]
        self._seen += complete.count(b"\n\n") + 1
        if self._seen > self._events:
            return f"its answer has more than {self._events} events"
        heavy = _marks(complete) > self._values and any(map(self._is_heavy, complete.split(b"\n\n")))
        return self._too_many if heavy else None

    def refusal_at_end(self) -> str | None:
        """The reason to refuse the answer, if its last event, or the whole answer, is too much; else None."""
        return self._too_many if self._is_heavy(bytes(self._begun)) else None

    @property
    def _too_many(self) -> str:
        return f"its answer has more than {self._values} values"

    def _is_heavy(self, text: bytes) -> bool:
        return _marks(text) > self._values and values_in(text, self._values) > self._values


def _marks(text: bytes) -> int:
    return sum(map(text.count, MARKS))


def values_in(text: bytes, most: int) -> int:
    """The number of marks outside of texts; the number of all marks, where texts can't be told apart."""
    bare = text.replace(rb"\\", b"").replace(rb"\"", b"")
    open_lines = b'"' in bare.translate(None, _NEITHER).replace(b'""', b"")  # in JSON a text ends in its line
    if open_lines or bare.count(b'"') > 4 * (most + 1):  # behind a mark stand a name and a text at most
        return _marks(text)
    return sum(map(_marks, bare.split(b'"')[::2]))


SLICE_BYTES = 4_096
"""The bytes of an answer that are handed on before others have their turn: some 80 of the smallest events."""

ENCODED = "its answers are compressed, although the request didn't allow that"


class ForbiddenConnection(httpx2.ConnectError):
    """A connection to a server is forbidden."""


class Unacceptable(httpx2.StreamError):
    """A server's answer is past its bounds. The package takes it for the end of that answer, and not of the session."""


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were judged, never to a name."""

    def __init__(self, *, anywhere: bool, resolve: LookUp = look_up, may_reach: Judge = is_public) -> None:
        """`anywhere` is for servers that the operator named; `may_reach` judges addresses of others."""
        self._may_reach: Judge | None = None if anywhere else may_reach
        self._resolve = resolve
        self._inner = cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to the first address that takes one. Raises ForbiddenConnection, httpcore2.ConnectError."""
        try:
            if self._may_reach is None:
                addresses = await self._resolve(host, port)
            else:
                addresses = await public_addresses(host, port, self._resolve, self._may_reach)
        except (ForbiddenAddress, OSError) as error:
            if self._may_reach is not None:
                raise ForbiddenConnection(NO_PUBLIC_ADDRESS) from error
            raise httpcore2.ConnectError(f"its name can't be resolved: {error}") from error
        failure: Exception = httpcore2.ConnectError("it has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Sleep, for the pool's own retries."""
        await self._inner.sleep(seconds)


class Transport(Heard, httpx2.AsyncBaseTransport):
    """Requests to one server, in one session: no proxy, no compression, and all within `limits`.

    `Heard` is about the POSTs, and not about the GET beside them, which is for the server's own messages.
    """

    def __init__(self, backend: CheckedBackend, limits: ToolLimits, *, connections: int) -> None:
        super().__init__()
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=tls(), max_connections=connections, network_backend=backend
        )
        self._limits = limits
        self._requests = Counter[str]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Returns the answer as it comes. Raises httpx2.TransportError."""
        method = request.method
        self._requests[method] += 1
        if self._requests[method] > self._limits.requests:  # a server may have the package ask again and again
            raise self._refuse(method, f"its session took more than {self._limits.requests} requests")
        request.headers["accept-encoding"] = "identity"
        url = request.url
        below = httpcore2.Request(
            method=method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            answer = await self._pool.handle_async_request(below)
        except (
            ForbiddenConnection,
            httpcore2.NetworkError,
            httpcore2.ProtocolError,
            httpcore2.TimeoutException,
        ) as error:
            why = str(error) or f"the connection failed ({type(error).__name__})"
            self._refuse(method, why)
            raise httpx2.ConnectError(why) from error
        if method == "POST":
            self.named = "mcp-session-id" in request.headers
            self.answered = self.answered or answer.status < 300
        if answer.status >= 300 and method != "GET":
            self.status = answer.status
        kinds = [value.lower() for name, value in answer.headers if name.lower() == b"content-type"]
        has_events = any(b"event-stream" in kind for kind in kinds)
        left_out = (b"content-encoding", b"content-type") if has_events else (b"content-encoding",)
        headers = [(name, value) for name, value in answer.headers if name.lower() not in left_out]
        if has_events:  # what is counted as events is read as events, and in UTF-8, whatever charset the server names
            headers.append((b"content-type", b"text/event-stream"))
        stream = _Bounded(answer, self._limits, partial(self._refuse, method), has_events=has_events)
        return httpx2.Response(answer.status, headers=headers, stream=stream)

    def _refuse(self, method: str, why: str) -> Unacceptable:
        if method != "GET":
            self.failure = why
        return Unacceptable(why)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """An answer within its bounds. One that is encoded is not read at all."""

    def __init__(
        self,
        answer: httpcore2.Response,
        limits: ToolLimits,
        refuse: Callable[[str], Unacceptable],
        *,
        has_events: bool,
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._refuse = refuse
        self._events = limits.answer_events if has_events else None

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        headers = [(name.lower(), value) for name, value in self._answer.headers]
        if any(name == b"content-encoding" and value != b"identity" for name, value in headers):
            raise self._refuse(ENCODED)
        limits, stream, left = self._limits, self._answer.stream, self._limits.answer_bytes
        weight = Weight(limits.answer_values, self._events)
        assert isinstance(stream, AsyncIterable)
        try:
            async for part in stream:
                left -= len(part)
                if left < 0:
                    raise self._refuse(f"its answer has more than {limits.answer_bytes} bytes")
                if (why := weight.refusal(part)) is not None:
                    raise self._refuse(why)
                for start in range(0, len(part), SLICE_BYTES):
                    yield part[start : start + SLICE_BYTES]
                    await asyncio.sleep(0)
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            raise httpx2.ReadError(str(error) or "its answer was cut off") from error
        if (why := weight.refusal_at_end()) is not None:
            raise self._refuse(why)

    async def aclose(self) -> None:
        await self._answer.aclose()


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """The context of all connections. It takes some 60 ms to make: ask for it where that holds up nobody."""
    return ssl.create_default_context()


STOP_SECONDS = 1.0
"""The time that a program has to end by itself, once no more requests come."""

COMPLAINT_BYTES = 500
"""The bytes of a program's standard error that are kept, and logged where it can't be spoken to."""

PIECE_BYTES = 4_096

PROCESSES = 32
"""The most programs that run at once, one for each response that uses such a server: each may take tens of MiB."""


class Processes(Share):
    """The places for programs in this process of the service, which tenants share."""

    @contextmanager
    def place(self, tenant: str) -> Generator[None]:
        """A place for one more program. Raises ToolUnreachable."""
        if not self.fits(tenant, 1):
            raise ToolUnreachable(f"This process already runs {self.limit} programs, its limit. Try again in a moment.")
        self.take(tenant, 1)
        try:
            yield
        finally:
            self.give_back(tenant, 1)


class Pipes(Heard):
    """A program and its pipes, as the client of the `mcp` package wants them."""

    def __init__(self, connection: McpConnection, program: Program, limits: ToolLimits, redaction: Redaction) -> None:
        super().__init__()
        self._label = connection.label
        self._program = program
        self._limits = limits
        self._redaction = redaction
        self._complaint = b""
        self._messages = 0
        """The messages that came since the last request."""

    def forget(self) -> None:
        """Forget the last request, as another one begins."""
        super().forget()
        self._messages = 0

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[tuple[Any, Any]]:
        """The program's output and input; it runs until the end of the block."""
        process = await self._start()
        say, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        send, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        work = [
            asyncio.create_task(each)
            for each in (self._read(process, say), self._write(process, to_send, say), self._listen(process))
        ]
        try:
            async with say, heard, send, to_send:
                yield heard, send
        finally:
            await _stop(process, work)
            if not self.answered:
                self._log("a server of tools could not be spoken to")

    async def _start(self) -> Process:
        program = self._program
        try:
            return await asyncio.create_subprocess_exec(
                *program.command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                env=dict(program.env),
                cwd=program.cwd,
                start_new_session=True,
                limit=self._limits.answer_bytes,
            )
        except OSError as error:
            self.failure = f"its program can't be started: {error.strerror or error}"
            self._log("a server of tools could not be started")
            raise ToolUnreachable(self.failure) from error

    def _log(self, what: str) -> None:
        said = self._redaction.text(self._complaint.decode(errors="replace"))
        event(logger, logging.WARNING, what, tool_server=self._label, reason=self.failure, last_words=said)

    async def _read(self, process: Process, say: "ObjectSendStream[SessionMessage | Exception]") -> None:
        """Hand on the program's messages, until it ends or says too much. A line that isn't JSON isn't meant for us."""
        assert process.stdout is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with say:
                while self.failure is None:
                    line = await self._line(process.stdout)
                    with suppress(ValueError):
                        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                        self.answered = True
                        await say.send(SessionMessage(message))

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        """One line; b"" for one that is too much, and behind the last one."""
        limits, weight = self._limits, Weight(self._limits.answer_values, None)
        try:
            line = await stdout.readline()
        except ValueError:
            self.failure = f"its answer has more than {limits.answer_bytes} bytes"
            return b""
        self._messages += 1
        weight.refusal(line)
        if not line:
            self.failure = "its program ended"
        elif self._messages > limits.answer_events:
            self.failure = f"its answer has more than {limits.answer_events} events"
        else:
            self.failure = weight.refusal_at_end()
        return b"" if self.failure else line

    async def _write(
        self,
        process: Process,
        to_send: "ObjectReceiveStream[SessionMessage]",
        say: "ObjectSendStream[SessionMessage | Exception]",
    ) -> None:
        """Write the messages to the program, until it no longer reads."""
        assert process.stdin is not None
        try:
            async for asked in to_send:
                process.stdin.write(asked.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()
        except (OSError, anyio.ClosedResourceError):
            await say.aclose()

    async def _listen(self, process: Process) -> None:
        """Keep the last of the program's complaints, and read them all, so that it never waits for a reader."""
        assert process.stderr is not None
        while piece := await process.stderr.read(PIECE_BYTES):
            self._complaint = (self._complaint + piece)[-COMPLAINT_BYTES:]


async def _stop(process: Process, work: list[asyncio.Task[None]]) -> None:
    """End a program: first by the end of its input, and then by a kill of its whole group."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for each in work:
            each.cancel()
        try:
            await asyncio.gather(*work, return_exceptions=True)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), STOP_SECONDS)
        finally:  # a process that left the group may hold the pipes, and nothing else closes them
            cast(Any, process)._transport.close()
