"""The routes of WebSockets: `GET /v1/responses`, which opens one."""

from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, WebSocket
from starlette.responses import Response

from service.errors import ApiError
from service.features.sockets.connection import Sockets
from service.features.sockets.reply import Visit
from service.web.auth import refuse_foreign, refuse_foreign_page
from service.web.entering import Aside, identify, process_of
from service.web.received import EXCHANGE

router = APIRouter(prefix="/v1", tags=["Responses"])


async def visiting(socket: WebSocket) -> AsyncGenerator[Visit]:
    """A WebSocket that may open, with its slot. Raises ApiError."""
    process, exchange = process_of(socket.scope), socket.scope[EXCHANGE]
    if process.entrance.keys.open:
        refuse_foreign("", exchange.headers)
        refuse_foreign_page(exchange.headers)
    await identify(process, exchange, "POST")
    with exchange.metrics.sockets.track_inprogress(), process.admission.socket(exchange.tenant) as slot:
        yield Visit(exchange, slot, partial(identify, process, exchange, "POST"))


@router.websocket("/responses")
async def serve(socket: WebSocket, visit: Annotated[Visit, Depends(visiting)]) -> None:
    """Serve one, to its end."""
    sockets: Sockets = socket.app.state.sockets
    await sockets.serve(visit, socket)


@router.get("/responses", summary="Open a WebSocket", operation_id="openWebSocket")
async def open_socket(_: Aside) -> Response:
    """Make many responses over one connection. A request that doesn't correctly open a WebSocket is a 426."""
    raise ApiError(
        426,
        "GET /v1/responses opens a WebSocket: send Upgrade: websocket, Connection: Upgrade, Sec-WebSocket-Version: 13 "
        "and a Sec-WebSocket-Key of 16 bytes as base64, over HTTP/1.1. A proxy may have removed these headers. Without "
        "a WebSocket, use POST.",
        code="upgrade_required",
    )
