"""One response that a WebSocket asked for: the same steps as `POST /v1/responses` with a stream, in frames.

It has an id, a slot, a log line and a count of its own, as a request has.
"""

import logging
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from functools import partial

from starlette.types import Scope
from uvicorn.protocols.utils import ClientDisconnected

from service import logs
from service.api.events import Event, ResponseCreated, Terminal
from service.api.request import CreateRequest, read_frame
from service.api.response import ResponseStatus
from service.api.steer import NotSteered, led_by_steers, required_input, succeeding
from service.engine.port import EngineError
from service.errors import ApiError
from service.responses.make import Maker, Ran, make
from service.responses.prepare import Prepared, Recall, standing_in
from service.responses.run import Run
from service.responses.service import Service
from service.web.admission.slots import Admission
from service.web.event_stream import RunSource
from service.web.middleware import CREATE, Admitted, Exchange, Visit, admitted, new_request_id, note_create
from service.web.socket.frames import error_frame, event_frames, shown_in_frames
from service.web.socket.lane import Lane, LaneRequest, Succession
from service.web.socket.protocol import SocketProtocol
from service.web.socket.steering import Steering
from store.errors import StoreError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """The surroundings that all responses of one connection share."""

    service: Service
    admission: Admission
    scope: Scope
    wire: SocketProtocol
    exchange: Exchange
    """The request that opened it."""
    visit: Visit
    """Its place among the WebSockets."""


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
        self._leading: Steering | None = None
        """The steers that lead its input, until it is created."""

    async def answer(self, asked: LaneRequest) -> LaneRequest | None:
        """Make it: send its events, or its error. Returns the request to make next, where it was steered."""
        exchange, opened, lane = self._exchange, self._opened, self._lane
        successor: LaneRequest | None = None
        token = logs.request_id.set(exchange.request_id)
        exchange.trace(opened.service.tracer)
        try:
            await opened.visit.identify()
            exchange.entry = opened.exchange.entry
            async with admitted(exchange, opened.admission, opened.service.pacing) as place:
                successor = await self._respond(asked, place)
        except ClientDisconnected:
            exchange.facts["client"] = "gone"
        except Exception as error:
            if asked.after is None:
                lane.forget(self._continues)
            await self._refuse(asked, error)
        finally:
            for steering in (self._leading, lane.steering):
                if steering is not None:
                    steering.end("failed")  # what is left of them, where nobody is there to be told
            lane.run = lane.steering = None
            if successor is None:
                opened.visit.slot.give_back(len(asked.frame))
            note_create(opened.scope, exchange)
            logs.request_id.reset(token)
        return successor

    async def _respond(self, asked: LaneRequest, place: Admitted) -> LaneRequest | None:
        """Serve the frame up to the last event; returns the request to make next. Raises ApiError, StoreError,
        EngineError, ClientDisconnected.
        """
        exchange, service, lane = self._exchange, self._opened.service, self._lane
        async with AsyncExitStack() as resources:
            maker = Maker(
                service,
                exchange.caller,
                partial(exchange.reserved, service.limiter),
                preparing=self._opened.admission.preparing(exchange.tenant, len(asked.frame)),
                note=exchange.planned,
                since=exchange.at,
                recall=self._recall,
            )
            made = await make(maker, partial(self._read, asked), resources)
            assert isinstance(made, Ran)  # a frame asks for no background response
            planned, run = made.prepared, made.run
            encoder = exchange.dialect.encoder(obfuscate=planned.obfuscate)
            place.resources.push_async_exit(resources.pop_all())
            source = RunSource(run, place)
            lane.run = run
            lane.steering = Steering(run, lane.name, exchange.metrics, supported=planned.steerable)
            async with aclosing(source.events()) as batches:
                async for events in batches:
                    exchange.status = 200
                    batch = shown_in_frames(events)
                    self._note(batch, planned, run)
                    if frames := event_frames(encoder, batch, lane.name):
                        await self._opened.wire.send_texts(frames)
                    if isinstance(batch[0], ResponseCreated):
                        await self._created()
        return await self._settle(asked, planned, run)

    def _read(self, asked: LaneRequest) -> CreateRequest:
        """The request, led by the steers that came meanwhile. Raises ApiError."""
        lane, after = self._lane, asked.after
        if after is not None:
            self._leading = after.steering
        wanted = read_frame(asked.frame, store=self._opened.service.settings.store)
        if after is not None:
            return succeeding(wanted, after.steering.id, after.instructions, after.standing, after.steering.said)
        self._continues = wanted.previous_response_id
        self._leading = lane.take_pending(wanted.previous_response_id)
        return wanted if self._leading is None else led_by_steers(wanted, self._leading.said)

    async def _created(self) -> None:
        """Its client knows of it: what was to lead its input has, and what else was pending in its lane has no place
        any more. Raises ClientDisconnected.
        """
        if self._leading is not None:
            self._leading.end("applied")
            self._leading = None
        pending, self._lane.pending = self._lane.pending, None
        if pending is not None:
            why = NotSteered("response_not_active", "Another response was made in its lane meanwhile.")
            await self._opened.wire.send_texts(pending.give_back(why))

    async def _settle(self, asked: LaneRequest, planned: Prepared, run: Run) -> LaneRequest | None:
        """See to what was said while the response was made: what is to be made next, if anything. Raises
        ClientDisconnected.
        """
        lane, steering, response = self._lane, self._lane.steering, run.response
        if steering is None or response is None or not steering.steers:
            return None
        if response.status is ResponseStatus.CANCELLED:
            await self._opened.wire.send_texts(
                steering.give_back(NotSteered("response_not_active", "The response was cancelled."))
            )
        elif response.status is ResponseStatus.FAILED:
            await self._opened.wire.send_texts(
                steering.give_back(NotSteered("successor_creation_failed", "The response failed."))
            )
        elif required := required_input(response):
            lane.steering, lane.pending = None, steering
            await self._opened.wire.send_texts(steering.pending(required))
        else:
            lane.steering = None
            standing = tuple(standing_in(planned.items))
            return LaneRequest(asked.frame, Succession(steering, planned.plan.base.instructions, standing))
        return None

    def _note(self, batch: list[Event], planned: Prepared, run: Run) -> None:
        """Remember the response before anybody hears of its end."""
        if isinstance(last := batch[-1], Terminal):
            if self._lane.steering is not None:
                self._lane.steering.close(last)
            self._lane.remember(planned, run)

    async def _refuse(self, asked: LaneRequest, error: Exception) -> None:
        """Say why there is no response, or no more of it. Steers that were to lead its input, or came for it, are given
        back. A successor that was not created gets no other frame, as its client asked for none.
        """
        exchange = self._exchange
        if not isinstance(error, ApiError | StoreError | EngineError):
            logger.error("request failed", exc_info=error)
        refusal = exchange.refused(error)
        exchange.status = refusal.status
        try:
            if asked.after is None or self._leading is None:
                await self._opened.wire.send_texts([error_frame(refusal, self._lane.name, exchange.request_id)])
            for steering in (self._leading, self._lane.steering):
                if steering is not None:
                    await self._opened.wire.send_texts(
                        steering.give_back(NotSteered("successor_creation_failed", refusal.message))
                    )
        except ClientDisconnected:
            exchange.facts["client"] = "gone"
