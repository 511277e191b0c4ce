"""The application of `harmonium sandbox`: the port's verbs over HTTP, for clients with the key.

A client that goes away ends nothing: its successor asks for the same call again. No word of a session's is logged.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from service.features.sandbox.local import LocalSandbox
from service.features.sandbox.port import Cell, SandboxError, begin
from service.features.sandbox.wire import MAX_BODY_BYTES, STATUS, WAIT_SECONDS, Of, OfFile, Open, Refusal, RunCell, Stop

Asked = TypeVar("Asked")
Handler = Callable[[Request], Awaitable[Response]]

PLAIN = {"open": Open, "stop": Stop, "close": Of, "files": Of, "remove": OfFile}
"""The verbs whose answer is the sandbox's, by the objects that ask for them."""


def sandbox_app(sandbox: LocalSandbox, key: str) -> Starlette:
    """The application, over a sandbox that has started. `key` is what requests have to present; empty is none."""
    running: dict[tuple[str, str], asyncio.Task[Cell]] = {}

    async def run(request: Request) -> Response:
        asked = await _read(request, RunCell)
        name = asked.session, asked.call
        if name not in running:
            running[name] = asyncio.create_task(sandbox.run(asked.session, asked.call, asked.code))
            running[name].add_done_callback(lambda _: running.pop(name))
        task = running[name]
        await asyncio.wait([task], timeout=WAIT_SECONDS)
        return _json(task.result() if task.done() else None)

    async def read(request: Request) -> Response:
        asked = await _read(request, OfFile)
        parts = await begin(sandbox.read(asked.session, asked.path))
        return StreamingResponse(parts, media_type="application/octet-stream")

    async def write(request: Request) -> Response:
        asked = msgspec.convert(dict(request.query_params), OfFile)
        return _json(await sandbox.write(asked.session, asked.path, request.stream()))

    def plain(verb: str, kind: type[msgspec.Struct]) -> Handler:
        async def answer(request: Request) -> Response:
            asked = msgspec.structs.asdict(await _read(request, kind))
            return _json(await getattr(sandbox, verb)(**asked))

        return answer

    def route(verb: str, handler: Handler) -> Route:
        async def guard(request: Request) -> Response:
            given = request.headers.get("authorization", "").encode()
            if key and not hmac.compare_digest(given, f"Bearer {key}".encode()):
                return _json(Refusal("The key is wrong: set HARMONIUM_SANDBOX_KEY to that of the sandbox."), 401)
            return await handler(request)

        return Route(f"/v1/{verb}", guard, methods=["POST"])

    async def health(request: Request) -> Response:
        return _json({"status": "ok"})

    handlers = {"run": run, "read": read, "write": write} | {verb: plain(verb, kind) for verb, kind in PLAIN.items()}
    return Starlette(
        routes=[*(route(*each) for each in handlers.items()), Route("/health", health, methods=["GET"])],
        exception_handlers=dict.fromkeys((SandboxError, ValueError, ClientDisconnect), _refusal),
    )


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, SandboxError):
        return _json(Refusal(str(error)), STATUS[type(error)])
    return _json(Refusal(f"This is no request of this sandbox: {error}"), 400)


async def _read(request: Request, kind: type[Asked]) -> Asked:
    """A request's object. Raises ValueError."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise ValueError(f"it has more than {MAX_BODY_BYTES:,} bytes")
    return msgspec.json.decode(body, type=kind)


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")
