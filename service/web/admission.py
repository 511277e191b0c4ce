"""How much one process works on at once: requests, background streams, WebSockets, and the bytes of bodies.

More is refused at once. A stream that follows a background response may be open for hours and costs little while no
event comes, so it has a slot of another kind: else a few hundred followers would keep everybody from cancelling what
they follow. A follower takes its slot before anything is accepted, and gives the request's slot back once it follows.

Nobody can take all of anything. Where there are several tenants, the last eighth is for those that have no more than
their share, so that whoever comes finds room, and comes to a share while others are over theirs. What a body becomes
until its prompt is made takes many times its size, so few large ones are prepared at once: the others wait.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

from prometheus_client import Counter

from service.errors import unavailable
from service.rates import Rate
from service.settings.settings import variable
from service.shares import Share
from service.steps import BRIEFLY, pause_after

PREPARED_BYTES = 16 * 1024 * 1024
"""How large the bodies may be together from which prompts are made at the same time."""

PREPARE_SECONDS = 30.0
"""How long a body may wait until it is prepared."""

PAUSE = 2
"""How many times as long as a step of a large body's preparation others may run after it, if there are any."""

SMALL_BODY_BYTES = 64 * 1024
"""A body of this size is prepared at once."""


class Admission:
    """Slots for requests and for followers, and room for bodies."""

    def __init__(
        self,
        refused: Counter,
        *,
        requests: int,
        followers: int,
        bodies: int,
        sockets: int = 0,
        several: Callable[[], bool] = lambda: False,
    ) -> None:
        """So many slots of each kind, and so many bytes of bodies, for one tenant or `several`.

        `refused` counts what is refused, by the kind.
        """
        self._requests = _Slots(
            Share(requests, several=several), "requests", "max_concurrent_requests", refused.labels("requests")
        )
        self._followers = _Slots(
            Share(followers, several=several),
            "streams of background responses",
            "max_followers",
            refused.labels("followers"),
        )
        self._sockets = _Slots(Share(sockets, several=several), "WebSockets", "max_sockets", refused.labels("sockets"))
        self._bodies = _Slots(
            Share(bodies, several=several), "bytes of bodies", "max_bodies_bytes", refused.labels("bodies")
        )
        self._preparing = Share(PREPARED_BYTES, several=several)
        self._waiting: list[_Waiting] = []
        self._large = 0
        """How many requests have a large body that is prepared, or waits for that."""
        self._taken = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def slot(self, tenant: str) -> Generator["Slot"]:
        """A request's slot until the end of the block. Raises ApiError 503 where none is free."""
        slot = Slot(tenant, self._requests, self._followers, self._bodies)
        self._taken += 1
        self._empty.clear()
        try:
            yield slot
        finally:
            slot.leave()
            self._taken -= 1
            if not self._taken:
                self._empty.set()

    @contextmanager
    def socket(self, tenant: str) -> Generator["SocketSlot"]:
        """A WebSocket's slot until the end of the block. Raises ApiError 503 where none is free."""
        slot = SocketSlot(tenant, self._sockets, self._bodies)
        try:
            yield slot
        finally:
            slot.leave()

    @asynccontextmanager
    async def preparing(self, tenant: str, size: int) -> AsyncGenerator[None]:
        """Wait until a body of so many bytes may be prepared, which it is until the end of the block.

        Raises ApiError 503 where that takes longer than PREPARE_SECONDS.
        """
        if size <= SMALL_BODY_BYTES:
            yield
            return
        waiting = _Waiting(tenant, min(size, PREPARED_BYTES // 2))  # any body fits in the end
        self._waiting.append(waiting)
        self._large += 1
        before = pause_after.get()
        pause_after.set(self._pause)
        try:
            self._let_in()
            async with asyncio.timeout(PREPARE_SECONDS):
                await waiting.turn.wait()
            yield
        except TimeoutError:
            if waiting.turn.is_set():
                raise
            raise unavailable("This process reads too many large requests. Try again in a moment.") from None
        finally:
            pause_after.set(before)
            self._large -= 1
            if waiting.turn.is_set():
                self._preparing.give_back(tenant, waiting.size)
            else:
                self._waiting.remove(waiting)
            self._let_in()

    def _pause(self, seconds: float) -> float:
        """For how long a large body lets others run after a step: an answer takes many turns of the loop, and would
        wait for a step in each of them.
        """
        return PAUSE * seconds if self._taken > self._large else BRIEFLY

    def _let_in(self) -> None:
        """Let those prepare who fit: first who has the least at work, then who came first. None goes past another, or a
        large body would wait for ever.
        """
        while self._waiting:
            first = min(self._waiting, key=lambda each: self._preparing.taken_by(each.tenant))
            if not self._preparing.fits(first.tenant, first.size):
                return
            self._waiting.remove(first)
            self._preparing.take(first.tenant, first.size)
            first.turn.set()

    async def wait_until_empty(self, seconds: float) -> bool:
        """Wait until no slot is taken, for so many seconds at most; whether that came true."""
        try:
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True


class _Waiting:
    """A body that waits to be prepared."""

    def __init__(self, tenant: str, size: int) -> None:
        self.tenant = tenant
        self.size = size
        self.turn = asyncio.Event()


class _Slots:
    """What is refused where it doesn't fit, and by which words."""

    def __init__(self, share: Share, what: str, setting: str, refused: Counter) -> None:
        self._share = share
        self._what = what
        self._setting = setting
        self._refused = refused
        self._rate = Rate()

    def take(self, tenant: str, amount: int) -> None:
        """Take so much. Raises ApiError 503."""
        if not self._share.fits(tenant, amount):
            self._refused.inc()
            raise unavailable(
                f"This process serves {self._share.limit} {self._what} already. Try again in a moment, or raise "
                f"{variable(self._setting)}.",
                self._rate.seconds_for(amount),
            )
        self._share.take(tenant, amount)
        self._rate.take(amount)

    def give_back(self, tenant: str, amount: int) -> None:
        self._share.give_back(tenant, amount)
        self._rate.free(amount)


class Slot:
    """What one request takes up."""

    def __init__(self, tenant: str, requests: _Slots, followers: _Slots, bodies: _Slots) -> None:
        """A slot among the requests. Raises ApiError 503."""
        self._tenant = tenant
        self._requests, self._followers, self._bodies = requests, followers, bodies
        self._taken: dict[_Slots, int] = {}
        self._take(requests, 1)

    def take_follower(self) -> None:
        """Take a follower's slot as well. Raises ApiError 503."""
        self._take(self._followers, 1)

    def take_body(self, size: int) -> None:
        """Take room for so many bytes more, of the request's body or of a stored answer's. Raises ApiError 503."""
        self._take(self._bodies, size)

    def take_answers(self, more: int) -> None:
        """Take so many slots more: a request for several answers is as many. Raises ApiError 503."""
        self._take(self._requests, more)

    def follow(self) -> None:
        """Only follow from now on: the request's slot is free again, and so is its body's room."""
        for slots in (self._requests, self._bodies):
            self._give_back(slots)

    def leave(self) -> None:
        """Give back what is left."""
        for slots in list(self._taken):
            self._give_back(slots)

    def _take(self, slots: _Slots, amount: int) -> None:
        if not amount:
            return
        slots.take(self._tenant, amount)
        self._taken[slots] = self._taken.get(slots, 0) + amount

    def _give_back(self, slots: _Slots) -> None:
        if amount := self._taken.pop(slots, 0):
            slots.give_back(self._tenant, amount)


class SocketSlot:
    """What one WebSocket takes up: a place among them, and room for its messages until they are read."""

    def __init__(self, tenant: str, sockets: _Slots, bodies: _Slots) -> None:
        """A slot among the WebSockets. Raises ApiError 503."""
        self._tenant = tenant
        self._sockets, self._bodies = sockets, bodies
        self._bytes = 0
        sockets.take(tenant, 1)

    def take(self, size: int) -> None:
        """Take room for so many bytes more, which is room of bodies. Raises ApiError 503."""
        self._bodies.take(self._tenant, size)
        self._bytes += size

    def give_back(self, size: int) -> None:
        """So many bytes were read."""
        self._bodies.give_back(self._tenant, size)
        self._bytes -= size

    def leave(self) -> None:
        """Give all back."""
        if self._bytes:
            self.give_back(self._bytes)
        self._sockets.give_back(self._tenant, 1)
