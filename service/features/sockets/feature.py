"""WebSockets in a process: their protocol and their route."""

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import APIRouter

from service.process import Feature
from service.responses.service import Service


class SocketsFeature(Feature):
    """WebSockets."""

    def responses_routers(self) -> Iterable[APIRouter]:
        from service.features.sockets import routes

        return (routes.router,)

    def state(self, service: Service, admission: Any) -> Mapping[str, object]:
        from service.features.sockets.connection import Sockets

        return {"sockets": Sockets(service, admission)}

    def socket_protocol(self) -> Any:
        from service.features.sockets.protocol import SocketProtocol

        return SocketProtocol


FEATURE = SocketsFeature()
