"""The outermost layer: who may enter, under which request id, with which headers, and what is logged of it.

Pure ASGI. It stamps the time of arrival and wraps `send`, and leaves `receive` alone, so that an endpoint sees its
client go away at once. Every answer leaves through here, so each has the headers that SDKs read.
"""

import asyncio
import logging
import secrets
import sys
from time import monotonic
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import logs
from service.admission import Admission
from service.auth import Keyring, refuse_foreign
from service.engine.port import EngineUnavailable
from service.errors import envelope, fault, unavailable
from service.protocol.errors import ApiError

logger = logging.getLogger(__name__)

OPENAI_VERSION = b"2020-10-01"
OPEN_PATHS = frozenset({"/health", "/ready"})
"""What needs no key: probes have none, and learn nothing but whether the service works."""

CLIENT_ID_CHARS = 512


class Arrival:
    """A request as the gate saw it; endpoints find it in the scope and add what belongs in the log line."""

    def __init__(self, tenant: str, request_id: str, headers: dict[bytes, bytes]) -> None:
        self.at = monotonic()
        self.tenant = tenant
        self.request_id = request_id
        self.headers = headers
        self.facts: dict[str, str | int | float | bool | None] = {}
        self.status = 0


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp, keyring: Keyring, admission: Admission) -> None:
        self._app = app
        self._admission = admission
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request in, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, _briefly(send))
            return
        arrival = Arrival("", f"req_{secrets.token_hex(16)}", dict(scope["headers"]))
        scope["arrival"] = arrival
        token = logs.request_id.set(arrival.request_id)
        answer = _answering(arrival, send)
        try:
            if self._keyring.empty:
                refuse_foreign(scope["method"], arrival.headers)
            if scope["path"] in OPEN_PATHS:
                await self._app(scope, receive, answer)
            else:
                arrival.tenant = self._keyring.tenant(arrival.headers)
                with self._admission.place():
                    await self._app(scope, receive, answer)
        except ApiError as error:
            await envelope(error)(scope, receive, answer)
        except asyncio.CancelledError:  # the server stops and its patience is over; what was said is stored
            arrival.facts["client"] = "cut off"
            if not arrival.status:
                await envelope(unavailable("The service is stopping. Try again in a moment."))(scope, receive, answer)
        except Exception:
            logger.exception("request failed")
            if not arrival.status:
                await envelope(fault())(scope, receive, answer)
        finally:
            _log(scope, arrival)
            logs.request_id.reset(token)


def _briefly(send: Send) -> Send:
    """`send` without the traceback of an engine that doesn't start: the log has the reason."""

    async def brief(message: Message) -> None:
        known = EngineUnavailable | asyncio.CancelledError
        if message["type"] == "lifespan.startup.failed" and isinstance(sys.exc_info()[1], known):
            message["message"] = ""
        await send(message)

    return brief


def _answering(arrival: Arrival, send: Send) -> Send:
    """`send` with our headers on the first message."""

    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            arrival.status = message["status"]
            elapsed = round((monotonic() - arrival.at) * 1000)
            message["headers"] = [
                *message.get("headers", ()),
                (b"x-request-id", arrival.request_id.encode()),
                (b"openai-processing-ms", str(elapsed).encode()),
                (b"openai-version", OPENAI_VERSION),
            ]
        await send(message)

    return answer


def _log(scope: Scope, arrival: Arrival) -> None:
    level = logging.DEBUG if scope["path"] in OPEN_PATHS else logging.INFO
    fields: dict[str, Any] = {
        "method": scope["method"],
        "path": scope["path"],
        "status": arrival.status,
        "ms": round((monotonic() - arrival.at) * 1000, 1),
        "tenant": arrival.tenant or None,
        **arrival.facts,
    }
    client_id = arrival.headers.get(b"x-client-request-id", b"")[:CLIENT_ID_CHARS]
    if client_id:
        fields["client_request_id"] = client_id.decode("ascii", "replace")
    logs.event(logger, level, "request", **fields)
