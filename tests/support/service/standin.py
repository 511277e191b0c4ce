"""A stand-in for the application, for tests of the shell around it: a few routes, no store, no engine.

It lives in a module so that worker processes can import it. Never test the application's behaviour with it.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import jsonschema_rs

from service.process import Settings

STUCK = "STUCK_FILE"
"""The environment variable that names a file which is there once the process is stuck."""


def create_app(settings: Settings) -> Any:
    """`/pid`, `/redis`: what this process is and was given; `/slow`: a second's stream; `/body`: its own.

    `/waiting` waits for its client to go; `/stuck` is never answered, and nothing else from then on.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["path"] == "/stuck":
            _never_returns()
        if scope["path"] == "/waiting":
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        received = await _read(receive) if scope["method"] == "POST" else b""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/slow":
            await _stream_for_a_second(send)
        known = {
            "/pid": str(os.getpid()),
            "/redis": settings.redis_url,
            "/body": f"{len(received)} bytes, {len(scope['headers'])} headers",
        }
        body = known.get(scope["path"], "done")
        await send({"type": "http.response.body", "body": body.encode()})

    return app


def _never_returns() -> None:
    """A call into C that holds Python's lock: no thread and no handler of a signal runs any more.

    The kernel may give SIGPROF to any thread: here to another one.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    if STUCK in os.environ:
        Path(os.environ[STUCK]).touch()
    levels: dict[str, Any] = {"d0": {"const": 0}}
    for level in range(60):
        ends = [{"prefixItems": [{"$ref": f"#/$defs/d{level}"}, {"const": end}], "minItems": 2} for end in (1, 2)]
        levels[f"d{level + 1}"] = {"anyOf": ends}
    value: Any = 0
    for _ in range(60):
        value = [value, 2]
    jsonschema_rs.is_valid({"$defs": levels, "$ref": "#/$defs/d60"}, value)


def create_broken_app(settings: Settings) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no engine"})

    return app


async def _read(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def _stream_for_a_second(send: Any) -> None:
    end = time.monotonic() + 1
    while time.monotonic() < end:
        await send({"type": "http.response.body", "body": b"tick ", "more_body": True})
        await asyncio.sleep(0.05)
