"""One response that a WebSocket asked for: the same steps as `POST /v1/responses` with a stream, in frames.

It has an id, a slot, a log line and a count of its own, as a request has.
"""

import logging
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import cast

from starlette.types import Scope
from uvicorn.protocols.utils import ClientDisconnected

from service import logs
from service.api.events import Event, Terminal
from service.api.request import read_frame
from service.engine.port import EngineError
from service.errors import ApiError, fault
from service.responses.prepare import Prepared, Recall, prepared
from service.responses.refusals import engine_refusal, store_refusal
from service.responses.run import Run, foreground
from service.responses.service import Caller, Service
from service.web.admission import Admission
from service.web.event_stream import RunSource
from service.web.middleware import CREATE, Exchange, new_request_id, note_create
from service.web.socket.frames import error_frame, event_frames
from service.web.socket.lane import Lane
from service.web.socket.protocol import SocketProtocol
from service.web.trace import trace_headers
from store.errors import StoreError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """What all responses of one connection are made with."""

    service: Service
    admission: Admission
    scope: Scope
    wire: SocketProtocol

    @property
    def exchange(self) -> Exchange:
        """The request that opened it."""
        return cast(Exchange, self.scope["exchange"])


class Reply:
    """The making of one response in a lane."""

    def __init__(self, opened: Opened, lane: Lane, recall: Recall) -> None:
        """`recall` is what the connection remembers under an id."""
        self._opened = opened
        self._lane = lane
        self._recall = recall
        whole = opened.exchange
        self._exchange = Exchange(
            whole.tenant, new_request_id(), whole.headers, whole.metrics, opened.scope["path"], CREATE
        )
        self._continues: str | None = None

    async def answer(self, frame: bytes) -> None:
        """Make it: send its events, or the error that it comes to."""
        exchange, opened = self._exchange, self._opened
        token = logs.request_id.set(exchange.request_id)
        try:
            exchange.work = await opened.service.pacing.begin(exchange.tenant)
            with (
                exchange.work,
                exchange.metrics.requests_in_progress.track_inprogress(),
                opened.admission.slot(exchange.tenant) as exchange.slot,
            ):
                await self._respond(frame)
        except ClientDisconnected:
            exchange.facts["client"] = "gone"
        except Exception as error:
            self._lane.forget(self._continues)
            await self._refuse(error)
        finally:
            self._lane.run = None
            opened.exchange.socket.give_back(len(frame))
            note_create(opened.scope, exchange)
            logs.request_id.reset(token)

    async def _respond(self, frame: bytes) -> None:
        """From the frame to the last event. Raises ApiError, StoreError, EngineError, ClientDisconnected."""
        exchange, service = self._exchange, self._opened.service
        async with AsyncExitStack() as resources:
            async with self._opened.admission.preparing(exchange.tenant, len(frame)):
                wanted = read_frame(frame, store=service.settings.store)
                self._continues, samples = wanted.previous_response_id, wanted.generate
                encoder = exchange.dialect.encoder(obfuscate=wanted.obfuscate)
                caller = Caller(exchange.tenant, trace_headers(exchange.headers))
                planned = await resources.enter_async_context(prepared(service, caller, wanted, recall=self._recall))
                del wanted
            exchange.facts["response_id"] = planned.plan.id
            exchange.left_out(planned.left_out)
            run, _ = await foreground(service, exchange.tenant, planned, "stream", since=exchange.at, samples=samples)
            source = RunSource(run, resources.pop_all(), exchange)
            self._lane.run = run
            async with aclosing(source.events()) as batches:
                async for batch in batches:
                    exchange.status = 200
                    self._note(batch, planned, run)
                    if frames := event_frames(encoder, batch, self._lane.name):
                        await self._opened.wire.send_texts(frames)

    def _note(self, batch: list[Event], planned: Prepared, run: Run) -> None:
        """Remember the response before anybody hears of its end."""
        if isinstance(batch[-1], Terminal):
            self._lane.remember(planned, run)

    async def _refuse(self, error: Exception) -> None:
        """Say why there is no response, or no more of it."""
        exchange = self._exchange
        if isinstance(error, StoreError):
            refusal = store_refusal(error)
        elif isinstance(error, EngineError):
            exchange.metrics.engine_failed(error)
            refusal = engine_refusal(error)
        elif isinstance(error, ApiError):
            refusal = error
        else:
            logger.error("request failed", exc_info=error)
            refusal = fault()
        exchange.refused(refusal)
        exchange.status = refusal.status
        try:
            await self._opened.wire.send_texts([error_frame(refusal, self._lane.name, exchange.request_id)])
        except ClientDisconnected:
            exchange.facts["client"] = "gone"
