"""Listening: what is said on channels of Redis, for any number of listeners over one connection of the process.

One connection to each node that has channels somebody listens to, and one subscription to a channel, however many
listeners it has. A channel keeps nothing: whoever is not there, or too slow, misses what is said. So not all of it
has to come, but a listener is told when something may be missing, and looks at what the messages are about. Subscribe
first, look after that, and then listen.

Subscriptions outlive their connection: where it is lost, or a slot moves to another node, they are made again, with
pauses that grow, for as long as anybody listens. Never keep messages without a bound here, and never let one listener
hold up another.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager

from redis import exceptions as redis_errors

from .client import Client
from .errors import StoreUnavailable
from .line import Line
from .places import Place, places_of

MAX_WAITING = 64
"""The most messages that wait for one listener; with one more all of them go, and it lags."""

MAX_WAITING_BYTES = 256 * 1024
"""The most that they may come to, in bytes: some hundred times what is said while a listener is at work. A message that
is larger by itself is never passed on."""

FIRST_PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 1.0
"""The longest pause before a subscription is tried again for the first time; each further one may be twice as long, up
to the maximum."""


class Listener:
    """One who listens to a channel."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._lagging = False
        self._closed = False
        self._sleep: asyncio.Future[None] | None = None

    async def messages(self, seconds: float) -> list[bytes] | None:
        """What was said since the last call, oldest first; waits `seconds` for it at most.

        Empty when nothing was said in time, or at `wake`. None when something may have been missed: look now at what
        the messages are about. Raises StoreUnavailable when nobody listens any more.
        """
        if not (self._waiting or self._lagging or self._closed):
            await self._rest(seconds)
        if self._closed:
            raise StoreUnavailable("nobody listens any more")
        if self._lagging:
            self._lagging = False
            return None
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        return waiting

    def wake(self) -> None:
        """Let whoever waits for messages go on without any."""
        if self._sleep is not None and not self._sleep.done():
            self._sleep.set_result(None)

    def tell(self, message: bytes) -> None:
        """Something was said."""
        if len(self._waiting) >= MAX_WAITING or self._bytes + len(message) > MAX_WAITING_BYTES:
            self.miss()
        else:
            self._waiting.append(message)
            self._bytes += len(message)
            self.wake()

    def miss(self) -> None:
        """Something may have been missed, so what waits is no longer worth anything."""
        self._waiting.clear()
        self._bytes = 0
        self._lagging = True
        self.wake()

    def begin(self) -> None:
        """The subscription stands, and nobody has looked yet, so nothing has been missed."""
        self._lagging = False

    def close(self) -> None:
        """Nothing comes any more."""
        self._closed = True
        self.wake()

    async def _rest(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._sleep = loop.create_future()
        timer = loop.call_later(seconds, self.wake)
        try:
            await self._sleep
        finally:
            timer.cancel()
            self._sleep = None


class _Subscription:
    """One channel, and all who listen to it here."""

    def __init__(self, channel: str, lose: Callable[[Sequence["_Subscription"], Exception], None]) -> None:
        self.channel = channel
        self.name = channel.encode()
        self.listeners: set[Listener] = set()
        self.line: Line | None = None
        self.place = ""
        """Where it was tried last."""
        self.pause = 0.0
        """How long it rested at most before it was tried last, since it stood."""
        self.failure: Exception | None = None
        self.stands = asyncio.Event()
        self._lose = lose

    def told(self, message: bytes) -> None:
        """Pass a message on."""
        for listener in self.listeners:
            listener.tell(message)

    def confirmed(self) -> None:
        """All messages come from now on; some that came before may have gone nowhere."""
        self.pause, self.failure = 0.0, None
        self.stands.set()
        for listener in self.listeners:
            listener.miss()

    def lost(self, failure: Exception) -> None:
        """Its line hears it no more."""
        self._lose([self], failure)

    def fail(self, failure: Exception) -> None:
        """Note that it has to be made again."""
        self.line = None
        self.pause = min(MAX_PAUSE_SECONDS, 2 * self.pause or FIRST_PAUSE_SECONDS)
        self.failure = failure
        self.stands.clear()


class Listening:
    """Listens to channels. It connects to nobody before the first one is wanted."""

    def __init__(
        self, redis: Client, *, timeout_seconds: float = 2.0, chance: Callable[[], float] = random.random
    ) -> None:
        """Close it before `redis` (see client.connect), whose connections it leaves alone.

        Subscribing takes `timeout_seconds` at most, and a server may be silent for twice as long. `chance` gives
        what pauses are multiplied by, 0 to 1.
        """
        self._places = places_of(redis)
        self._seconds = timeout_seconds
        self._chance = chance
        self._subscriptions: dict[str, _Subscription] = {}
        self._lines: dict[str, Line] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def channel(self, name: str) -> AsyncGenerator[Listener]:
        """Listen to a channel. Whatever is said after this has begun comes to the listener, or makes it lag.

        Raises StoreUnavailable when the server doesn't confirm that in time.
        """
        if self._closed:
            raise StoreUnavailable("nobody listens any more")
        subscription = self._subscriptions.get(name) or self._begin(name)
        listener = Listener()
        subscription.listeners.add(listener)
        try:
            await self._confirmed(subscription)
            listener.begin()
            yield listener
        finally:
            subscription.listeners.discard(listener)
            if not subscription.listeners:
                self._end(subscription)

    async def close(self) -> None:
        """Hang up, and let go of all who listen. Their next call for messages raises StoreUnavailable."""
        self._closed = True
        for subscription in self._subscriptions.values():
            for listener in subscription.listeners:
                listener.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _confirmed(self, subscription: _Subscription) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await subscription.stands.wait()
        except TimeoutError as late:
            reason = subscription.failure or late
            raise StoreUnavailable(f"not subscribed within {self._seconds} s: {reason}") from reason

    def _begin(self, name: str) -> _Subscription:
        subscription = self._subscriptions[name] = _Subscription(name, self._lose)
        self._spawn(self._place([subscription], 0.0))
        return subscription

    def _end(self, subscription: _Subscription) -> None:
        del self._subscriptions[subscription.channel]
        if subscription.line is not None:
            subscription.line.unsubscribe(subscription.name)

    def _lose(self, group: Sequence[_Subscription], failure: Exception) -> None:
        """Make subscriptions that failed together again, together, after a pause."""
        for subscription in group:
            subscription.fail(failure)
            self._places.doubt(subscription.place)
        self._spawn(self._place(group, max(subscription.pause for subscription in group) * self._chance()))

    async def _place(self, group: Sequence[_Subscription], pause: float) -> None:
        """After a pause of some seconds, put each subscription that is still wanted on the line to its place."""
        await asyncio.sleep(pause)
        for at, subscription in enumerate(group):
            try:
                async with asyncio.timeout(self._seconds):
                    place = await self._places.of(subscription.channel)
            except (redis_errors.RedisError, OSError) as failure:
                self._lose(group[at:], failure)
                return
            if self._subscriptions.get(subscription.channel) is subscription:  # somebody still listens
                subscription.place = place.name
                subscription.line = self._line(place)
                subscription.line.subscribe(subscription.name, subscription)

    def _line(self, place: Place) -> Line:
        line = self._lines.get(place.name)
        if line is None:
            line = self._lines[place.name] = Line(place.connection(), self._seconds)
            self._spawn(self._run(place.name, line))
        return line

    async def _run(self, place: str, line: Line) -> None:
        """Keep a line for as long as it lasts."""
        try:
            await line.run()
        except (redis_errors.RedisError, OSError) as failure:
            if heard := [each for each in self._subscriptions.values() if each.line is line]:
                self._lose(heard, failure)
        finally:
            del self._lines[place]

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
