"""The way to MCP servers: connections that go where they may, and answers that end where they must.

It stands below the `mcp` package, which bounds neither an answer in JSON nor the address behind a name. A host is
resolved once for each connection, and every address of it is judged. The connection goes to a judged address, even if
the name resolves to another one a moment later.

The values of a server's answer are counted before anything parses it: they cost time, even in a few bytes. The `mcp`
package checks each on the event loop, in some 5 µs, so 1 MiB of empty objects takes seconds. So they are counted as
the bytes come. A text is one value, with any content. Never parse.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from functools import lru_cache, partial
from typing import Any, cast

import httpcore2
import httpx2

from service.ssrf import ForbiddenAddress, Judge, LookUp, is_public, look_up
from service.tools.port import Heard, ToolLimits

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

    def refusal(self, part: bytes) -> str | None:
        """The reason to refuse the answer, if the events that this part completes are too much; else None."""
        unread = max(len(self._begun) - 1, 0)
        self._begun += part.replace(b"\r", b"")  # no text of JSON has one, and a line may end with it
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

ENCODED = "it sends its answers compressed, which nobody asked for"


class Refused(httpx2.ConnectError):
    """A connection to a server is forbidden."""


class Unacceptable(httpx2.StreamError):
    """A server's answer is past its bounds. The package takes it for the end of that answer, and not of the session."""


class Backend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were judged, never to a name."""

    def __init__(self, *, anywhere: bool, resolve: LookUp = look_up, may_reach: Judge = is_public) -> None:
        """`anywhere` is for servers that the operator named; `may_reach` judges addresses of others."""
        self._anywhere = anywhere
        self._may_reach = may_reach
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
        """A connection to the first address that takes one. Raises Refused, httpcore2.ConnectError."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise httpcore2.ConnectError(f"its name can't be resolved: {error.strerror or error}") from error
        for address in addresses:
            if not self._anywhere and not self._may_reach(address):
                raise Refused(str(ForbiddenAddress(address)))
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

    def __init__(self, backend: Backend, limits: ToolLimits, *, connections: int) -> None:
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
            raise self._refused(method, f"its session took more than {self._limits.requests} requests")
        request.headers["accept-encoding"] = "identity"
        try:
            answer = await self._pool.handle_async_request(_below(request))
        except (Refused, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            why = str(error) or f"the connection failed ({type(error).__name__})"
            self._note(method, why)
            raise httpx2.ConnectError(why) from error
        if method == "POST":
            self.named = "mcp-session-id" in request.headers
            self.answered = self.answered or answer.status < 300
        if answer.status >= 300 and method != "GET":
            self.status = answer.status
        encoded = any(name.lower() == b"content-encoding" and value != b"identity" for name, value in answer.headers)
        headers = [(name, value) for name, value in answer.headers if name.lower() != b"content-encoding"]
        stream = _Bounded(answer, self._limits, partial(self._refused, method), encoded=encoded)
        return httpx2.Response(answer.status, headers=headers, stream=stream)

    def _note(self, method: str, why: str) -> None:
        if method != "GET":
            self.failure = why

    def _refused(self, method: str, why: str) -> Unacceptable:
        self._note(method, why)
        return Unacceptable(why)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """An answer within its bounds. One that is `encoded` is not read at all."""

    def __init__(
        self,
        answer: httpcore2.Response,
        limits: ToolLimits,
        refuse: Callable[[str], Unacceptable],
        *,
        encoded: bool,
    ) -> None:
        self._answer = answer
        self._limits = limits
        self._refuse = refuse
        self._encoded = encoded

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        if self._encoded:
            raise self._refuse(ENCODED)
        limits, stream = self._limits, self._answer.stream
        left, events = limits.answer_bytes, limits.answer_events if self._has_events else None
        weight = Weight(limits.answer_values, events)
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

    @property
    def _has_events(self) -> bool:
        headers = self._answer.headers
        return any(name.lower() == b"content-type" and b"event-stream" in value.lower() for name, value in headers)

    async def aclose(self) -> None:
        await self._answer.aclose()


def _below(request: httpx2.Request) -> httpcore2.Request:
    url = request.url
    return httpcore2.Request(
        method=request.method,
        url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=request.stream,
        extensions=request.extensions,
    )


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """The context of all connections. It takes some 60 ms to make: ask for it where that holds up nobody."""
    return ssl.create_default_context()
