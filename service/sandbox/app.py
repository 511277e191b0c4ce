"""The application of `harmonium sandbox`: the port's verbs over HTTP, for clients with the key.

A client that goes away ends nothing: its successor asks for the same call again. No word of a session's is logged.
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from service.sandbox.local import LocalSandbox
from service.sandbox.port import Cell, Gone, SandboxError
from service.sandbox.wire import MAX_BODY_BYTES, STATUS, WAIT_SECONDS, Of, OfFile, Open, Refusal, Run, Stop

Asked = TypeVar("Asked")
Handler = Callable[[Request], Awaitable[Response]]


class BadRequest(Exception):
    """A body that is no request of this wire."""


class SandboxApp:
    """The verbs, over a sandbox that has started. `key` is what requests have to present; empty is none."""

    def __init__(self, sandbox: LocalSandbox, key: str) -> None:
        self._sandbox, self._key = sandbox, key.encode()
        self._running: dict[tuple[str, str], asyncio.Task[Cell]] = {}

    def routes(self) -> Starlette:
        """The application."""
        verbs = (self.open, self.run, self.stop, self.close, self.files, self.read, self.write, self.remove)
        routes = [Route(f"/v1/{verb.__name__}", self._guarded(verb), methods=["POST"]) for verb in verbs]
        return Starlette(routes=[*routes, Route("/health", self.health, methods=["GET"])])

    def _guarded(self, verb: Handler) -> Handler:
        """A verb for those who have the key, its refusals as answers."""

        async def answered(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode()
            if self._key and not hmac.compare_digest(given, b"Bearer " + self._key):
                return _json(Refusal("The key is wrong: set HARMONIUM_SANDBOX_KEY to that of the sandbox."), 401)
            try:
                return await verb(request)
            except SandboxError as error:
                return _json(Refusal(str(error)), STATUS[type(error)])
            except (BadRequest, ValueError) as error:
                return _json(Refusal(f"This is no request of this sandbox: {error}"), 400)
            except ClientDisconnect:
                return _json(Refusal("The request has no end."), 400)

        return answered

    async def health(self, request: Request) -> Response:
        """Whether it answers at all, for everybody."""
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def open(self, request: Request) -> Response:
        """Have a session."""
        asked = await _read(request, Open)
        return _json(await self._sandbox.open(asked.session, asked.tenant, asked.limits, lasting=asked.lasting))

    async def run(self, request: Request) -> Response:
        """Run a cell, and wait a while for its end."""
        asked = await _read(request, Run)
        name = asked.session, asked.call
        if name not in self._running:
            task = asyncio.create_task(self._sandbox.run(asked.session, asked.call, asked.code))
            self._running[name] = task
            task.add_done_callback(lambda _: self._running.pop(name))
        running = self._running[name]
        await asyncio.wait([running], timeout=WAIT_SECONDS)
        return _json(running.result()) if running.done() else Response(status_code=202)

    async def stop(self, request: Request) -> Response:
        """Interrupt a cell."""
        asked = await _read(request, Stop)
        await self._sandbox.stop(asked.session, asked.call)
        return Response(status_code=204)

    async def close(self, request: Request) -> Response:
        """End a session."""
        await self._sandbox.close((await _read(request, Of)).session)
        return Response(status_code=204)

    async def files(self, request: Request) -> Response:
        """List its files."""
        return _json(await self._sandbox.files((await _read(request, Of)).session))

    async def read(self, request: Request) -> Response:
        """Send a file."""
        asked = await _read(request, OfFile)
        parts = self._sandbox.read(asked.session, asked.path)
        first = await anext(parts, b"")  # where there is no such file it raises here, and not amid the answer
        return StreamingResponse(_behind(first, parts), media_type="application/octet-stream")

    async def write(self, request: Request) -> Response:
        """Take a file."""
        asked = msgspec.convert(dict(request.query_params), OfFile)
        return _json(await self._sandbox.write(asked.session, asked.path, request.stream()))

    async def remove(self, request: Request) -> Response:
        """Delete a file."""
        asked = await _read(request, OfFile)
        await self._sandbox.remove(asked.session, asked.path)
        return Response(status_code=204)


async def _behind(first: bytes, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    try:
        async for part in parts:
            yield part
    except Gone:
        return


async def _read(request: Request, kind: type[Asked]) -> Asked:
    """A request's object. Raises BadRequest."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise BadRequest(f"it has more than {MAX_BODY_BYTES:,} bytes")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(str(error)) from None


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
