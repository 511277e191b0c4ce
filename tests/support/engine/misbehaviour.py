"""Answers of a server that went wrong, for standin.py to give: other bytes, other endings, or none."""

import asyncio
from dataclasses import dataclass
from enum import Enum

from aiohttp import web


class Then(Enum):
    """What comes behind the pieces of an answer that went wrong."""

    END = "end"
    CUT = "cut"
    STALL = "stall"
    AGAIN = "again"


@dataclass(frozen=True)
class Instead:
    """An answer of these bytes, and then what: AGAIN repeats the last of them for ever. Status 0 sends no head."""

    pieces: tuple[bytes, ...] = ()
    status: int = 200
    then: Then = Then.END
    headers: tuple[tuple[str, str], ...] = ()


async def misbehave(request: web.Request, instead: Instead) -> web.StreamResponse:
    stream = web.StreamResponse(status=instead.status or 200, headers=dict(instead.headers))
    if instead.status:
        stream.enable_chunked_encoding()
        await stream.prepare(request)
    for piece in instead.pieces:
        await stream.write(piece)
        await asyncio.sleep(0)  # so that each arrives by itself
    while instead.then is Then.AGAIN:
        await stream.write(instead.pieces[-1])
        await asyncio.sleep(0)  # a write lets nobody else run before all buffers are full
    if instead.then is Then.CUT:
        transport_of(request).close()
    if instead.then in (Then.CUT, Then.STALL):
        await asyncio.Event().wait()  # until the connection is gone, which cancels this
    return stream


def transport_of(request: web.Request) -> asyncio.Transport:
    """The connection that a request came over."""
    assert isinstance(request.transport, asyncio.Transport), "the connection is gone"
    return request.transport
