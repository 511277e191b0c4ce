"""How much one process works on at once: requests, background streams, WebSockets, and the bytes of bodies.

A request for a response that finds no slot waits for one, before its body is read; whose turn it is then, `queue` says.
All else is refused at once where there is no room. A request that asks no model takes a slot as well, and
where none is free one ASIDE: so nobody who wants to look at a response or to cancel it is behind those that wait.

A stream that follows a background response may be open for hours and costs little while no event comes, so it has a
slot of another kind: else a few hundred followers would keep everybody from cancelling what they follow. A follower
takes its slot before anything is accepted, and gives the request's slot back once it follows.

A body takes many times its size until its prompt is made, so few large ones are prepared at once: the others wait. How
tenants share each kind of room, `service/shares.py` says.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from time import monotonic

from prometheus_client import Counter

from service import spans
from service.errors import ApiError, ClientGone, stopping, unavailable
from service.metrics.counters import Metrics
from service.settings.sources import variable
from service.shares import Rate, Room, Share, aside
from service.steps import BRIEFLY, pause_after
from service.web.admission.queue import Bill, Queue, QueueTicket, ServedTenants

ASIDE = 8
"""Requests that ask no model have such a part of the slots more, and at least as many slots."""

PREPARED_BYTES = 16 * 1024 * 1024
"""The most bytes of bodies that are made into prompts at the same time."""

PREPARE_SECONDS = 30.0

PAUSE = 2
"""Others, if there are any, may run so many times as long as the step of a large body's preparation before them."""

SMALL_BODY_BYTES = 64 * 1024


_Ticket = QueueTicket[asyncio.Future["Slot"]]

DisconnectHook = Callable[[Callable[[], None] | None], None]
"""Takes what is to be called when a client disconnects; None takes that back."""


class Admission:
    """Slots for requests and for followers, the queue for them, and room for bodies."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        requests: int,
        followers: int,
        bodies: int,
        sockets: int = 0,
        queued: int = 0,
        queue_seconds: float = 0.0,
        several: Callable[[], bool] = lambda: False,
        weight: Callable[[str], float] = lambda _: 1.0,
    ) -> None:
        """So many slots of each kind, and so many bytes of bodies, for one tenant or `several`. So many requests wait
        for a slot, each for `queue_seconds` at most. `weight` is that of a tenant, above 0.
        """

        def slots(limit: int, label: str, what: str, setting: str = "") -> _Slots:
            return _Slots(limit, several, what, metrics.refused.labels(label), setting)

        aside = max(ASIDE, requests // ASIDE)
        self._metrics = metrics
        self._requests = slots(requests, "requests", "requests", "max_concurrent_requests")
        self._aside = slots(aside, "requests", "additional requests that need no model", "max_concurrent_requests")
        self.followers = slots(followers, "followers", "streams of background responses")
        self._sockets = slots(sockets, "sockets", "WebSockets")
        self.bodies = slots(bodies, "bodies", "bytes of bodies", "max_body_bytes")
        self._served = ServedTenants(weight)
        self._queue = Queue[asyncio.Future[Slot]](self._served)
        self._queued = Share(queued, several=several)
        self._queue_seconds = queue_seconds
        self._stopping = False
        self._preparing = Room(PREPARED_BYTES, several=several)
        self._large = 0
        """How many requests have a large body that is prepared, or waits for that."""
        self.open_slots: set[Slot] = set()
        self.empty = asyncio.Event()
        """Set whenever the last of them is given back."""

    def slot(self, tenant: str) -> "Slot":
        """A slot of a request that asks no model, until the end of a block. Raises ApiError 503."""
        return self._slot(tenant, self._requests if self._requests.fits(tenant) else self._aside)

    def socket(self, tenant: str) -> "Slot":
        """A WebSocket's slot until the end of a block. Raises ApiError 503 where none is free."""
        return Slot(self, tenant, self._sockets)

    def _begin(self, tenant: str) -> "Slot":
        return self._slot(tenant, self._requests, self._served.begin(tenant))

    def _slot(self, tenant: str, place: "_Slots", bill: Bill | None = None) -> "Slot":
        slot = Slot(self, tenant, place, bill)
        self.open_slots.add(slot)
        return slot

    async def slot_in_line(
        self, tenant: str, waited: Callable[[float], None] = lambda _: None, when_gone: DisconnectHook | None = None
    ) -> "Slot":
        """A slot of a request for a response, until the end of a block, once it is its turn.

        `waited` is told how many seconds that took, if it had to wait; `when_gone` when its client disconnects. Raises
        ApiError 503 where it is not its turn in time, or too many wait. Raises ClientGone.
        """
        if not len(self._queue) and self._requests.fits(tenant):
            self._served.come(tenant, ())
            return self._begin(tenant)
        ticket = self._queue.join(tenant, asyncio.get_running_loop().create_future())
        self.let_begin()
        if not ticket.answer.done():
            await self._wait(ticket, waited, when_gone or (lambda _: None))
        return ticket.answer.result()

    def stop(self) -> None:
        self._stopping = True
        for ticket in self._queue.tickets():
            _end(ticket, stopping())

    def let_begin(self) -> None:
        """A slot may have come free: let those begin whose turn it is."""
        while (ticket := self._queue.take(self._requests.fits)) is not None:
            if not ticket.answer.done():
                ticket.answer.set_result(self._begin(ticket.tenant))

    async def _wait(self, ticket: "_Ticket", waited: Callable[[float], None], when_gone: DisconnectHook) -> None:
        """Wait until a ticket is answered. Raises ApiError 503 where it may not wait, or did in vain."""
        tenant, began = ticket.tenant, monotonic()
        if (refusal := self._not_waiting(tenant)) is not None:
            self._queue.leave(ticket)
            raise refusal
        self._queued.take(tenant, 1)
        when_gone(partial(_end, ticket, ClientGone()))
        try:
            with self._metrics.requests_waiting.track_inprogress(), spans.current.get().child("admission"):
                await asyncio.wait([ticket.answer], timeout=self._queue_seconds)
        except asyncio.CancelledError:
            if ticket.answer.done() and ticket.answer.exception() is None:
                ticket.answer.result().leave()
            raise
        finally:
            when_gone(None)
            self._queue.leave(ticket)
            self._queued.give_back(tenant, 1)
            self.let_begin()  # whoever it was before, where only that one had to go first
            self._metrics.wait_seconds.observe(monotonic() - began)
            waited(monotonic() - began)
        if not ticket.answer.done():
            also = f" No slot was free within {self._queue_seconds:g} s."
            raise self._requests.refusal(1 + len(self._queue), also)

    def _not_waiting(self, tenant: str) -> ApiError | None:
        if self._stopping:
            return stopping()
        if not self._queue_seconds:
            return self._requests.refusal(1)
        if not self._queued.fits(tenant):
            also = f" {len(self._queue) - 1} wait already."
            return self._requests.refusal(len(self._queue), also)
        return None

    def preparing(self, tenant: str, size: int) -> AbstractAsyncContextManager[None]:
        """Wait until a body of so many bytes may be prepared, which it is until the end of the block.

        Raises ApiError 503 where that takes longer than PREPARE_SECONDS.
        """
        return nullcontext() if size <= SMALL_BODY_BYTES else self._preparing_large(tenant, size)

    @asynccontextmanager
    async def _preparing_large(self, tenant: str, size: int) -> AsyncGenerator[None]:
        self._large += 1
        pause_before, aside_before = pause_after.get(), aside.get()
        # an answer takes many turns of the loop, and would wait for a step in each of them
        pause_after.set(lambda seconds: PAUSE * seconds if len(self.open_slots) > self._large else BRIEFLY)
        try:
            async with AsyncExitStack() as room:

                async def enter() -> None:
                    try:
                        async with asyncio.timeout(PREPARE_SECONDS):
                            await room.enter_async_context(self._preparing.space(tenant, size))
                    except TimeoutError:
                        said = "This process reads too many large requests. Try again in a moment."
                        raise unavailable(said) from None

                @asynccontextmanager
                async def leave() -> AsyncGenerator[None]:
                    await room.aclose()
                    yield
                    await enter()

                aside.set(leave)
                await enter()
                yield
        finally:
            pause_after.set(pause_before)
            aside.set(aside_before)
            self._large -= 1

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no slot is taken, for so many seconds at most; whether that came true."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.open_slots:
                    self.empty.clear()
                    await self.empty.wait()
        return not self.open_slots


def _end(ticket: "_Ticket", why: Exception) -> None:
    if not ticket.answer.done():
        ticket.answer.set_exception(why)


class _Slots(Share):
    """One kind of slots, with the words that refuse a request for which there is no room."""

    def __init__(self, limit: int, several: Callable[[], bool], what: str, refused: Counter, setting: str = "") -> None:
        super().__init__(limit, several=several)
        self._what = what
        self._remedy = f"raise {variable(setting)}" if setting else "start another process"
        self._refused = refused
        self._rate = Rate()

    def refusal(self, amount: int, also: str = "") -> ApiError:
        """The 503 for want of so much, and what it says besides."""
        self._refused.inc()
        served = f"This process serves {self.limit} {self._what} already.{also}"
        return unavailable(f"{served} Try again in a moment, or {self._remedy}.", self._rate.seconds_for(amount))

    def take(self, tenant: str, amount: int) -> None:
        """Take so much. Raises ApiError 503."""
        if not self.fits(tenant, amount):
            raise self.refusal(amount)
        super().take(tenant, amount)
        self._rate.take(amount)

    def give_back(self, tenant: str, amount: int) -> None:
        super().give_back(tenant, amount)
        self._rate.free(amount)


class Slot(AbstractContextManager["Slot"]):
    """The slots that one request takes up, or one WebSocket, and the room for its body, or for messages to read."""

    def __init__(self, admission: Admission, tenant: str, place: _Slots, bill: Bill | None = None) -> None:
        """A slot at a `place`; `bill` is settled when it is given back. Raises ApiError 503."""
        self._admission, self._tenant, self._place, self._bill = admission, tenant, place, bill
        self._began = monotonic()
        self._taken: dict[_Slots, int] = {}
        self._take(place, 1)

    def take_follower(self) -> None:
        """Take a follower's slot as well. Raises ApiError 503."""
        self._take(self._admission.followers, 1)

    def take_body(self, size: int) -> None:
        """Take room for so many bytes more, of the request's body or of a stored answer's. Raises ApiError 503."""
        self._take(self._admission.bodies, size)

    def give_back(self, size: int) -> None:
        self._give_back(self._admission.bodies, size)

    def take_answers(self, more: int) -> None:
        """Take so many slots more: a request for several answers is as many. Raises ApiError 503."""
        self._take(self._place, more)

    def served(self, prompt: int, output: int) -> None:
        """The request has taken so many tokens by now, of its prompts and of its output."""
        if self._bill is not None:
            self._bill.note(prompt, output)

    def follow(self) -> None:
        """Only follow from now on: the request's slot is free again, and so is its body's room."""
        for slots in (self._admission.bodies, self._place):
            self._give_back(slots, self._taken.get(slots, 0))

    def leave(self) -> None:
        for slots, amount in list(self._taken.items()):
            self._give_back(slots, amount)
        self._admission.open_slots.discard(self)
        if not self._admission.open_slots:
            self._admission.empty.set()

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _take(self, slots: _Slots, amount: int) -> None:
        if amount:
            slots.take(self._tenant, amount)
            self._taken[slots] = self._taken.get(slots, 0) + amount

    def _give_back(self, slots: _Slots, amount: int) -> None:
        if not amount:
            return
        self._taken[slots] -= amount
        slots.give_back(self._tenant, amount)
        if slots is self._place:
            if self._bill is not None:
                self._bill.settle(monotonic() - self._began)
            self._admission.let_begin()
