"""The way to MCP servers: connections that go where they may, and answers that end where they must.

It stands below the `mcp` package, which bounds neither an answer in JSON nor where a name leads. A host is resolved
once for each connection, every address of it is judged, and the connection goes to one that was judged, whatever the
name resolves to a moment later.
"""

import ssl
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from functools import lru_cache
from typing import Any, cast

import httpcore2
import httpx2

from service.addresses import ForbiddenAddress, LookUp, is_public, look_up

ENCODED = "it sends its answers compressed, which nobody asked for"


class Refused(httpx2.ConnectError):
    """A server must not be connected to."""


class Unacceptable(httpx2.StreamError):
    """A server must not answer so. The package takes it for the end of that answer alone, and not of the session."""


class Backend(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that were judged, never to a name."""

    def __init__(self, *, anywhere: bool, resolve: LookUp = look_up) -> None:
        """`anywhere` is for servers that the operator named; others have public addresses alone."""
        self._anywhere = anywhere
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
            if not self._anywhere and not is_public(address):
                raise Refused(str(ForbiddenAddress(address)))
        failure: Exception = httpcore2.ConnectError("it has no address")
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        """For the pool's own retries."""
        await self._inner.sleep(seconds)


class Transport(httpx2.AsyncBaseTransport):
    """Requests to one server: no proxy, no compression, and no answer of more than `answer_bytes`."""

    def __init__(self, backend: Backend, *, answer_bytes: int, connections: int) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_tls(), max_connections=connections, network_backend=backend
        )
        self._answer_bytes = answer_bytes
        self.status: int | None = None
        self.failure: str | None = None
        """The last status that said no, and why nothing, or not all, was read: the package tells neither."""

    def forget(self) -> None:
        """Another request begins, of which nothing is known yet."""
        self.status = self.failure = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; the answer as it comes. Raises httpx2.TransportError."""
        request.headers["accept-encoding"] = "identity"
        try:
            answer = await self._pool.handle_async_request(_below(request))
        except (Refused, httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            self.failure = str(error) or f"the connection failed ({type(error).__name__})"
            raise httpx2.ConnectError(self.failure) from error
        if answer.status >= 400 or 300 <= answer.status < 400:
            self.status = answer.status
        encoded = any(name.lower() == b"content-encoding" and value != b"identity" for name, value in answer.headers)
        headers = [(name, value) for name, value in answer.headers if name.lower() != b"content-encoding"]
        stream = _Bounded(answer, -1 if encoded else self._answer_bytes, self._note)
        return httpx2.Response(answer.status, headers=headers, stream=stream)

    def _note(self, why: str) -> Unacceptable:
        self.failure = why
        return Unacceptable(why)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """An answer, up to so many bytes; -1 is for one that must not be read at all."""

    def __init__(self, answer: httpcore2.Response, most: int, refuse: Callable[[str], Unacceptable]) -> None:
        self._answer = answer
        self._most = most
        self._refuse = refuse

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        left, stream = self._most, self._answer.stream
        if left < 0:
            raise self._refuse(ENCODED)
        assert isinstance(stream, AsyncIterable)
        try:
            async for part in stream:
                left -= len(part)
                if left < 0:
                    raise self._refuse(f"its answer has more than {self._most} bytes")
                yield part
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            raise httpx2.ReadError(str(error) or "its answer was cut off") from error

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
def _tls() -> ssl.SSLContext:
    """Making one takes some 20 ms, so there is one for all."""
    return ssl.create_default_context()
