"""Reads a request's body, and afterwards watches for its client to disconnect; breaks an answer off.

Both use ASGI's `receive` directly: nothing may stand between it and the server, or a disconnect is seen late.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from starlette.types import Receive, Scope

from service.errors import ApiError, ClientGone, InvalidRequest
from service.web.http_protocol import BREAK_OFF, WHEN_GONE


async def read_body(
    receive: Receive,
    content_length: bytes | None,
    *,
    limit: int,
    seconds: float,
    take: Callable[[int], None],
    text: bool = True,
) -> bytes:
    """The body. One longer than `limit` bytes is refused before it is read, where its length was announced.

    `take` is told how many bytes more have come, and may refuse them. One of `text` has to be there, and UTF-8. Raises
    ApiError: 413, or 408 when it isn't complete after `seconds`. Raises ClientGone.
    """
    if content_length is not None and (not content_length.isdigit() or int(content_length[:20]) > limit):
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            body = await _pieces(receive, limit, take)
    except TimeoutError:
        raise ApiError(
            408, f"The request's body didn't arrive within {seconds:g} s. Send it faster.", code="request_timeout"
        ) from None
    if not text:
        return body
    if not body:
        raise InvalidRequest("The request has no body; send a JSON object.", code="invalid_json")
    if not body.isascii():  # parts of a body are echoed or listed as they came, and nothing else checks those
        try:
            body.decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                "The body of the request could not be parsed as JSON: it is not valid UTF-8.", code="invalid_json"
            ) from None
    return body


async def _pieces(receive: Receive, limit: int, take: Callable[[int], None]) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        take(len(piece))
        pieces.append(piece)
        if not message.get("more_body", False):
            return b"".join(pieces)


async def watch(receive: Receive, gone: Callable[[], None]) -> None:
    """Wait for the client to disconnect, then call `gone`. Cancel it when the answer is sent."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone()


@contextmanager
def watching(receive: Receive, gone: Callable[[], None]) -> Generator[asyncio.Task[None]]:
    """The block in which `gone` is called when the client disconnects, and the task that waits for that."""
    watcher = asyncio.create_task(watch(receive, gone))
    try:
        yield watcher
    finally:
        watcher.cancel()


@contextmanager
def hearing(scope: Scope, receive: Receive, gone: Callable[[], None]) -> Generator[None]:
    """The same behind a body that was read. Our own server calls `gone` itself, which takes no task."""
    tell = scope.get("extensions", {}).get(WHEN_GONE, {}).get("tell")
    if tell is None:
        with watching(receive, gone):
            yield
        return
    tell(gone)
    try:
        yield
    finally:
        tell(None)


async def break_off(scope: Scope, receive: Receive) -> None:
    """End an answer without its end, so that no client takes what it has for all of it."""
    scope["extensions"][BREAK_OFF]["now"]()
    await watch(receive, lambda: None)  # uvicorn would log an error if this returned before


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413,
        f"The request's body is larger than {limit} bytes. Send less, or continue a stored response.",
        code="request_too_large",
    )
