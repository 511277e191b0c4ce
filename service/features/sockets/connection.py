"""A WebSocket from its first frame to its close: its lanes, how many run at once, and why it ends.

    receive ─▶ frame ─▶ lane ─▶ Reply ─▶ frames
                 │       ▲        │
                 │       └─ successor of what was steered
                 └─▶ cancel, steer

One task reads as long as the connection lives, whatever is under way: a cancel, a ping or a close is seen at once. A
client that disconnects stops its responses, and they are stored, as over HTTP. Any other end of a connection waits
for the responses under way: that of its time, or of the service, whose close code makes clients connect again.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import Any, cast

from starlette.websockets import WebSocket, WebSocketDisconnect
from uvicorn.protocols.utils import ClientDisconnected
from websockets.frames import CloseCode

from service.api.steer import NotSteered, read_in_steps, read_sent, read_steer
from service.errors import ApiError, InvalidRequest, stopping, unavailable
from service.features.sockets.frames import CANCEL, CREATE, STEER, ClientFrame, error_frame, lane_of, read_envelope
from service.features.sockets.lane import Lane, LaneRequest
from service.features.sockets.memory import ResponseMemory
from service.features.sockets.protocol import WIRE, SocketProtocol
from service.features.sockets.reply import OpenedSocket, SocketReply, Visit
from service.features.sockets.steering import SocketSteer, Steering, count_steers, failure_of
from service.responses.parent import Remembered
from service.responses.refusals import refusal_of
from service.responses.service import Service
from service.steps import in_steps
from service.web.admission.slots import Admission
from store.errors import StoreError

MEMORY_BYTES = 128 * 1024 * 1024
"""The memory in which a process keeps what its WebSockets may continue. Beyond it, what was used least by the tenant
that has most is let go of: what is stored is read again, and what isn't can't be continued."""

MAX_LANES = 32
"""The most names of lanes that one connection uses, besides the lane without a name (OpenAI's limit)."""

MAX_IN_FLIGHT = 16
"""The most responses that one connection has under way; more wait (OpenAI's limit)."""

MAX_WAITING = 64
"""The most frames of one connection that wait for their turn."""

OPEN_SECONDS = 3600.0
"""How long a connection may be open (OpenAI's limit). Responses under way end first."""

IDLE_SECONDS = 900.0
"""How long it may be without a message and without a response under way: clients that are gone keep no place."""

logger = logging.getLogger(__name__)


class Sockets:
    """Serves WebSockets."""

    def __init__(self, service: Service, admission: Admission) -> None:
        self.service = service
        self.admission = admission
        self.memory = ResponseMemory(MEMORY_BYTES)

    async def serve(self, visit: Visit, socket: WebSocket) -> None:
        """Serve one, to its end."""
        await socket.accept()
        await SocketConnection(self, visit, socket).serve()


class SocketConnection:
    """One WebSocket that was accepted."""

    def __init__(self, sockets: Sockets, visit: Visit, socket: WebSocket) -> None:
        self._settings, self._attachments = sockets.service.settings, sockets.service.attachments
        self._memory = sockets.memory
        self._exchange = visit.exchange
        self._wire = cast(SocketProtocol, visit.exchange.scope["extensions"][WIRE])
        self._opened = OpenedSocket(sockets.service, sockets.admission, self._wire, visit)
        self._room = visit.slot
        self._socket = socket
        self._lanes: dict[str | None, Lane] = {}
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._loop = asyncio.get_running_loop()
        self._quiet_since = self._loop.time()
        self._over: asyncio.Future[None] = self._loop.create_future()
        """Done when the connection is to be closed."""
        self._leaving: tuple[CloseCode, ApiError] | None = None
        """Why nothing new is begun, once that is so, and the code with which it will be closed."""
        self._ending = False
        """Whether nothing more is made, not even after what was steered."""
        self._creates = 0

    async def serve(self) -> None:
        """Serve it, until its client goes or it is closed."""
        self._wire.use(self._room, self._stop)
        limit = self._loop.call_later(OPEN_SECONDS, self._time_is_up)
        idle = asyncio.create_task(self._watch_idleness(IDLE_SECONDS))
        reading = asyncio.create_task(self._read())
        try:
            await asyncio.wait((reading, self._over), return_when=asyncio.FIRST_COMPLETED)
            if reading.done() and (bug := reading.exception()) is not None:
                logger.error("a WebSocket met a bug", exc_info=bug)
                self._wire.close_now(CloseCode.INTERNAL_ERROR, "The service failed on a frame. Its log has the reason.")
            await self._close()
        except asyncio.CancelledError:  # the server stops, and the time for that is over
            self._wire.cut_off_if_lagging()
            await self._end_all()
            self._wire.close_now(CloseCode.SERVICE_RESTART, "The service is stopping.")
            raise
        finally:
            limit.cancel()
            for task in (idle, reading):
                task.cancel()
            await self._end_all()
            for lane in self._lanes.values():
                lane.close()
            self._wire.use_no_more()
            self._exchange.facts["responses"] = self._creates

    # --- frames ---

    async def _read(self) -> None:
        """Take frames until the client is gone."""
        with suppress(ClientDisconnected):
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                if message["type"] == "websocket.receive":
                    self._quiet_since = self._loop.time()
                    await self._take(message)
                    await asyncio.sleep(0)  # so that many that have come leave the loop to others

    async def _take(self, message: Any) -> None:
        """Do what a frame asks for, or say why not."""
        frame: bytes = (message.get("text") or "").encode()
        try:
            if message.get("bytes") is not None:
                raise InvalidRequest("Binary frames are not supported. Send JSON as text.", code="binary_frame")
            read = read_envelope(frame)
            if read.kind == CREATE:
                self._queue(read, frame)
            elif read.kind == CANCEL:
                self._cancel(read)
            elif read.kind == STEER:
                await self._steer(frame)
        except ApiError as error:
            await asyncio.sleep(0)  # a large frame was read, and is read again for its lane
            await self._wire.send_texts([error_frame(error, lane_of(frame))])

    def _queue(self, read: ClientFrame, frame: bytes) -> None:
        """Have a response made, at its turn. Raises ApiError."""
        if self._leaving is not None:
            raise self._leaving[1]
        lane = self._lanes.get(read.lane)
        if lane is None:
            if read.lane is not None and len(self._lanes.keys() - {None}) >= MAX_LANES:
                raise InvalidRequest(
                    f"This WebSocket has used {MAX_LANES} names for 'stream_id' already. Use one of them, or connect "
                    "again.",
                    code="websocket_stream_limit_reached",
                    param="stream_id",
                )
            lane = self._lanes[read.lane] = Lane(self._exchange.tenant, read.lane, self._memory)
        if sum(len(each.waiting) for each in self._lanes.values()) >= MAX_WAITING:
            raise ApiError(
                429,
                f"{MAX_WAITING} frames of this WebSocket wait already. Wait for the end of a response.",
                type="rate_limit_error",
                code="too_many_pending_frames",
            )
        self._room.take_body(len(frame))
        lane.waiting.append(LaneRequest(frame))
        if lane.working is None:
            lane.working = asyncio.create_task(self._work(lane))

    async def _work(self, lane: Lane) -> None:
        """Make the responses of a lane, one after the other."""
        try:
            while lane.waiting:
                async with self._in_flight:
                    if not lane.waiting:  # the connection has ended meanwhile
                        return
                    asked = lane.waiting.popleft()
                    self._creates += 1
                    successor = await SocketReply(self._opened, lane, partial(self._recall, lane)).answer(asked)
                if successor is not None:
                    lane.waiting.appendleft(successor)
                    if self._ending:
                        await self._let_go(lane)
        finally:
            lane.working = None
            self._quiet_since = self._loop.time()
            self._leave_if_quiet()

    def _recall(self, lane: Lane, id: str) -> Remembered | None:
        """The turn that this connection remembers under an id: of its own lane first, or of another that it forks."""
        for each in (lane, *self._lanes.values()):
            if (found := each.recall(id)) is not None:
                return found
        return None

    def _cancel(self, read: ClientFrame) -> None:
        """Stop a run: the one with the id, or the lane's. Its terminal event is the answer. Raises ApiError."""
        lane = self._lanes.get(read.lane)
        lanes = self._lanes.values() if read.response_id is not None else (lane,) if lane else ()
        for each in lanes:
            if each.driver is not None and read.response_id in (None, each.driver.plan.id):
                each.driver.stop()
                return
        named = "No response is" if read.response_id is None else f"The response '{read.response_id[:100]}' is not"
        raise ApiError(
            404,
            f"{named} running on this WebSocket. It may just have ended.",
            code="response_not_active",
            param="response_id",
        )

    async def _steer(self, frame: bytes) -> None:
        """Take what is said to a response that is under way, or give it back. Raises ApiError where that can't be told,
        or there is no room for it.
        """
        sent = read_sent(frame)
        steer = SocketSteer(sent, len(frame), self._room)
        known = next(filter(None, (lane.steering_of(sent.response_id) for lane in self._lanes.values())), None)
        try:
            if known is None:
                named = sent.response_id[:100]
                raise NotSteered("response_not_found", f"No response '{named}' was made on this WebSocket lately.")
            accepted = await self._acceptance(steer, known, frame)
        except NotSteered as why:
            count_steers(self._exchange.metrics, "refused")
            event = failure_of(sent, why) if known is None else known.failure(steer, why)
            await self._wire.send_texts([event])
            return
        finally:
            if steer.id is None:
                steer.let_go()
        count_steers(self._exchange.metrics, "accepted")
        await self._wire.send_texts([accepted])
        known.hasten()

    async def _acceptance(self, steer: SocketSteer, steering: Steering, frame: bytes) -> bytes:
        """The event that says that a response takes what a frame says to it. Raises NotSteered."""
        steering.check(steer)
        if self._leaving is not None:
            raise NotSteered("successor_creation_failed", self._leaving[1].message)
        try:
            raw, steer.messages = read_steer(frame)
            whole = await self._attachments.read_into(self._exchange.entry, raw)
            await in_steps(read_in_steps(whole, self._settings.picture_bounds))
        except (ApiError, StoreError) as error:
            raise NotSteered("invalid_input", refusal_of(error).message) from None
        return steering.take(steer)

    # --- the end ---

    @property
    def _busy(self) -> bool:
        return any(lane.working is not None for lane in self._lanes.values())

    def _leave(self, code: CloseCode, reason: ApiError) -> None:
        """Begin nothing new, and close once all that was begun has ended."""
        if self._leaving is None:
            self._leaving = code, reason
            self._leave_if_quiet()

    def _leave_if_quiet(self) -> None:
        if self._leaving is not None and not self._busy and not self._over.done():
            self._over.set_result(None)

    def _stop(self) -> None:
        """The server stops."""
        self._leave(CloseCode.SERVICE_RESTART, stopping())

    def _time_is_up(self) -> None:
        limit = f"{OPEN_SECONDS / 60:g} minutes"
        reason = InvalidRequest(
            f"Responses websocket connection limit reached ({limit}). Create a new websocket connection to continue.",
            code="websocket_connection_limit_reached",
        )
        self._leave(CloseCode.GOING_AWAY, reason)

    async def _watch_idleness(self, seconds: float) -> None:
        """Close the connection when nothing was asked for, and nothing under way, for so long."""
        while True:
            left = self._quiet_since + seconds - self._loop.time()
            if self._busy:
                left = seconds
            elif left <= 0:
                reason = unavailable(f"The WebSocket was idle for {seconds:g} s. Connect again.")
                self._leave(CloseCode.GOING_AWAY, reason)
                return
            await asyncio.sleep(left)

    async def _close(self) -> None:
        """Close it, if it is still open, and say why where that isn't what a stop is."""
        if self._leaving is None or not self._over.done():
            return
        code, reason = self._leaving
        for lane in self._lanes.values():
            await self._let_go(lane)
        with suppress(ClientDisconnected, WebSocketDisconnect):
            if reason.code == "websocket_connection_limit_reached":
                await self._wire.send_texts([error_frame(reason, None)])
            await self._socket.close(code, reason.message[:100])

    async def _end_all(self) -> None:
        """Stop what is under way, which is stored, and forget what waits. Returns once that is so."""
        self._ending = True
        tasks: list[asyncio.Task[None]] = []
        for lane in self._lanes.values():
            await self._let_go(lane)
            if lane.working is None:
                continue
            tasks.append(lane.working)
            if lane.driver is not None:
                lane.driver.stop()
            else:
                lane.working.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _let_go(self, lane: Lane) -> None:
        """Forget what waits in a lane; what was said to be added to it is given back."""
        over = NotSteered("successor_creation_failed", "The connection ends. Send the message again on another one.")
        pending, lane.pending = lane.pending, None
        given_back = [] if pending is None else pending.give_back(over)
        while lane.waiting:
            asked = lane.waiting.popleft()
            self._room.give_back(len(asked.frame))
            if asked.after is not None:
                given_back += asked.after.steering.give_back(over)
        if given_back:
            with suppress(ClientDisconnected):
                await self._wire.send_texts(given_back)
