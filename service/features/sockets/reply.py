"""One response that a WebSocket asked for: the same steps as `POST /v1/responses` with a stream, in frames.

It has an id, a slot, a log line and a count of its own, as a request has.
"""

import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from uvicorn.protocols.utils import ClientDisconnected

from service import logs
from service.api.events import Terminal
from service.api.request import CreateRequest, read_frame
from service.api.response import ResponseStatus, SteerCode
from service.api.steer import NotSteered, led_by_steers, required_input, succeeding
from service.engine.port import EngineError
from service.errors import ApiError
from service.features.sockets.frames import error_frame, in_frames, shown_in_frames
from service.features.sockets.lane import Lane, LaneRequest, Succession
from service.features.sockets.protocol import SocketProtocol
from service.features.sockets.steering import Steering
from service.responses.drive import Driver
from service.responses.make import Ran, make
from service.responses.prepare import Prepared, Recall, standing_in
from service.responses.run import Taken
from service.responses.service import Service
from service.web.admission.slots import Admission, Slot
from service.web.event_stream import Noting
from service.web.exchange import CREATE, Admitted, Exchange, admit
from service.web.sse import Pulse
from store.errors import StoreError

logger = logging.getLogger(__name__)


class Visit(NamedTuple):
    """A WebSocket that may open: the request for it, its slot, and a check of its key, which may become invalid."""

    exchange: Exchange
    slot: Slot
    identify: Callable[[], Awaitable[None]]
    """Raises ApiError."""


@dataclass(frozen=True)
class OpenedSocket:
    """The surroundings that all responses of one connection share."""

    service: Service
    admission: Admission
    wire: SocketProtocol
    visit: Visit
    """The request that opened it, and its place among the WebSockets."""


class SocketReply:
    """The making of one response in a lane, and the outlet of its run: its events as frames."""

    def __init__(self, opened: OpenedSocket, lane: Lane, recall: Recall) -> None:
        """`recall` is what the connection remembers under an id."""
        self.opened = opened
        self.lane = lane
        self._recall = recall
        whole = opened.visit.exchange
        self.exchange = Exchange(whole.scope, whole.metrics, CREATE, whole.tenant, dialect=whole.dialect)
        self._continues: str | None = None
        self._leading: Steering | None = None
        """The steers that lead its input, until it is created."""
        self._kept = False
        """Whether some of its frames go out with `room`."""
        self._created = False
        """Whether its client was told that it is created, and what comes of that."""
        self._client_gone = False

    async def answer(self, asked: LaneRequest) -> LaneRequest | None:
        """Make it: send its events, or its error. Returns the request to make next, where it was steered."""
        exchange, opened, lane = self.exchange, self.opened, self.lane
        successor: LaneRequest | None = None
        if asked.after is not None:
            self._leading = asked.after.steering
        token = logs.request_id.set(exchange.request_id)
        exchange.trace(opened.service.tracer)
        try:
            await opened.visit.identify()
            exchange.entry = opened.visit.exchange.entry
            async with await admit(exchange, opened.admission, opened.service.tenants.pacing) as place:
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
            lane.driver = lane.steering = None
            if successor is None:
                opened.visit.slot.give_back(len(asked.frame))
            exchange.end()
            logs.request_id.reset(token)
        return successor

    async def _respond(self, asked: LaneRequest, place: Admitted) -> LaneRequest | None:
        """Serve the frame up to the last event; returns the request to make next. Raises ApiError, StoreError,
        EngineError, ClientDisconnected.
        """
        exchange, service, lane = self.exchange, self.opened.service, self.lane
        async with AsyncExitStack() as resources:
            preparing = self.opened.admission.preparing(exchange.tenant, len(asked.frame))
            maker = exchange.maker(service, preparing, recall=self._recall)
            made = await make(maker, partial(self._read, asked), resources)
            assert isinstance(made, Ran)  # a frame asks for no background response
            planned, driver = made.prepared, made.driver
            lane.driver = self._driver = driver
            lane.steering = Steering(driver, lane.name, exchange.metrics, supported=planned.steerable)
            self._place, self._planned = place, planned
            self._noting = Noting(driver, place)
            self._encoder = exchange.dialect.encoder(obfuscate=planned.obfuscate)
            with Pulse(self._beat, service.settings.keepalive_seconds) as self._pulse:
                await driver.make(self)
        if self._client_gone:
            raise ClientDisconnected
        return await self._settle(asked, planned, driver)

    def _read(self, asked: LaneRequest) -> CreateRequest:
        """The request, led by the steers that came meanwhile. Raises ApiError."""
        lane, after = self.lane, asked.after
        wanted = read_frame(asked.frame, store=self.opened.service.settings.store)
        if after is not None:
            return succeeding(wanted, after.steering.id, after.instructions, after.standing, after.steering.said)
        self._continues = wanted.previous_response_id
        self._leading = lane.take_pending(wanted.previous_response_id)
        return wanted if self._leading is None else led_by_steers(wanted, self._leading.said)

    # --- the outlet of its run ---

    def put(self, taken: Taken) -> bool:
        """See Outlet. The first events go out with `room`, as what was said for the response is told of then."""
        if not taken.events:
            return True
        wire, batch = self.opened.wire, shown_in_frames(taken.events)
        self._pulse.sent()
        self.exchange.status = 200
        self._noting.note(last := batch[-1])
        if isinstance(last, Terminal):  # it is remembered before anybody hears of its end
            if self.lane.steering is not None:
                self.lane.steering.close(last)
            self.lane.remember(self._planned, self._driver)
        if self._client_gone:
            return True
        self._encoder.append(batch, buffer := bytearray())
        frames = in_frames(bytes(buffer), self.lane.name)
        if not self._created or not wire.ready:
            self._kept = True
            wire.keep(frames)
            return False
        try:
            wire.write(frames)
        except ClientDisconnected:
            self._gone()
        return not self._place.work.crowded()

    async def room(self) -> None:
        """See Outlet."""
        kept, self._kept = self._kept, False
        try:
            if kept:
                await self.opened.wire.send_texts()
            if not self._created:
                self._created = True
                await self._tell_created()
        except ClientDisconnected:
            self._gone()
        await self._place.work.go_on()

    async def settle(self) -> None:
        """See Outlet. Nothing is kept before the end."""

    async def _beat(self) -> None:
        """Say that it is still being made, as clients don't count pings; a client that lags has enough to read."""
        steering, encoder = self.lane.steering, self._encoder
        if self._created and self.opened.wire.ready:
            if steering is not None:
                encoder.number = max(encoder.number, steering.accepted)
            try:
                self.opened.wire.write(in_frames(encoder.keep_alive(), self.lane.name))
            except ClientDisconnected:
                self._gone()

    def _gone(self) -> None:
        self._client_gone = True
        self._driver.stop()

    async def _tell_created(self) -> None:
        """Its client knows of it: what was to lead its input has, and what else was pending in its lane has no place
        any more. Raises ClientDisconnected.
        """
        if self._leading is not None:
            self._leading.end("applied")
            self._leading = None
        pending, self.lane.pending = self.lane.pending, None
        if pending is not None:
            await self._give_back(pending, "response_not_active", "Another response began in its lane.")

    # --- its end ---

    async def _settle(self, asked: LaneRequest, planned: Prepared, driver: Driver) -> LaneRequest | None:
        """See to what was said while the response was made: what is to be made next, if anything. Raises
        ClientDisconnected.
        """
        lane, steering, response = self.lane, self.lane.steering, driver.response
        if steering is None or response is None or not steering.steers:
            return None
        if response.status is ResponseStatus.CANCELLED:
            await self._give_back(steering, "response_not_active", "The response was cancelled.")
        elif response.status is ResponseStatus.FAILED:
            await self._give_back(steering, "successor_creation_failed", "The response failed.")
        elif required := required_input(response):
            lane.steering, lane.pending = None, steering
            await self.opened.wire.send_texts(steering.pending(required))
        else:
            lane.steering = None
            standing = tuple(standing_in(planned.items))
            return LaneRequest(asked.frame, Succession(steering, planned.plan.base.instructions, standing))
        return None

    async def _give_back(self, steering: Steering, code: SteerCode, message: str) -> None:
        """Tell the client why its steers are given back. Raises ClientDisconnected."""
        await self.opened.wire.send_texts(steering.give_back(NotSteered(code, message)))

    async def _refuse(self, asked: LaneRequest, error: Exception) -> None:
        """Say why there is no response, or no more of it. Steers that were to lead its input, or came for it, are given
        back. A successor that was not created gets no other frame, as its client asked for none.
        """
        exchange = self.exchange
        if not isinstance(error, ApiError | StoreError | EngineError):
            logger.error("request failed", exc_info=error)
        refusal = exchange.refusal(error)
        exchange.status = refusal.status
        try:
            if asked.after is None or self._leading is None:
                await self.opened.wire.send_texts([error_frame(refusal, self.lane.name, exchange.request_id)])
            for steering in (self._leading, self.lane.steering):
                if steering is not None:
                    await self._give_back(steering, "successor_creation_failed", refusal.message)
        except ClientDisconnected:
            exchange.facts["client"] = "gone"
