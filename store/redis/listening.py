"""Listening: messages on channels of Redis, for any number of listeners over one connection of the process.

One connection to each node that has channels somebody listens to, and one subscription to a channel, however many
listeners it has. A channel keeps nothing: whoever is not there, or too slow, misses what is sent. So not all of it
has to come, but a listener is told when something may be missing, and looks at what the messages are about. Subscribe
first, look after that, and then listen.

The channels are Redis's sharded ones, so that on a cluster only the node that has a channel's slot hears of its
messages. Commands and their answers keep their order; whatever else comes is a message, or the news that a channel has
moved to another node. A server that sends nothing is asked whether it is there, as one that hangs would go unnoticed.

A subscribed connection can carry nothing else. So it is made beside redis-py's pools, with their options, and never
counts as one of theirs. One that fails never connects again: the next one is made, with pauses that grow, for as long
as anybody listens. Never keep messages without a bound here, and never let one listener hold up another.
"""

import asyncio
import random
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Protocol, cast

from redis import exceptions as redis_errors
from redis.asyncio import ConnectionPool, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from store.errors import StoreUnavailable
from store.redis.client import Client
from store.redis.links import Nodes, pack


class Connection(Protocol):
    """What is used of a redis-py connection, which is made without connecting to anybody."""

    async def connect(self) -> None: ...
    async def disconnect(self) -> None: ...
    async def send_packed_command(self, command: bytes, check_health: bool) -> None: ...
    async def read_response(self, *, timeout: float) -> Any: ...


class Place(Protocol):
    """A server that has some channels."""

    @property
    def name(self) -> str:
        """What tells it from other places."""
        ...

    def connection(self) -> Connection:
        """A new connection to it, whose owner closes it."""
        ...


class Places(Protocol):
    """Who has which channel."""

    async def of(self, channel: str) -> Place:
        """The place that has a channel. Raises ConnectionError of redis-py where none is known."""
        ...

    def doubt(self, place: str) -> None:
        """Learn that a place, by its name, has failed, or has a channel no more."""
        ...


class OnePlace:
    """One server, or whoever is primary when it connects: both have all channels."""

    name = ""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    def connection(self) -> Connection:
        """A new connection, which asks the Sentinels for the primary, if there are any."""
        return cast(Connection, self._pool.make_connection())

    async def of(self, channel: str) -> Place:
        """The only one."""
        return self

    def doubt(self, place: str) -> None:
        """Nothing: a new connection finds the primary by itself."""


class NodePlace:
    """One node of a cluster."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.name = node.name

    def connection(self) -> Connection:
        """A new connection, made as the node makes its own."""
        options: dict[str, Any] = {**self._node.connection_kwargs, "retry": Retry(NoBackoff(), 0)}
        return cast(Connection, self._node.connection_class(**options))


class ClusterPlaces:
    """The nodes of a cluster, each with the channels of its slots."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._nodes = Nodes(cluster)

    async def of(self, channel: str) -> Place:
        """The primary that has the channel's slot."""
        return NodePlace(cast(ClusterNode, await self._nodes.of(channel)))

    def doubt(self, place: str) -> None:
        """Ask the other nodes who has which slot before this one is used again."""
        self._nodes.doubt(place)


def places_of(client: Client) -> Places:
    """The places of the server, or the servers, that a client is for."""
    return ClusterPlaces(client) if isinstance(client, RedisCluster) else OnePlace(client.connection_pool)


class Ear(Protocol):
    """Who is told what comes over a channel. Nothing here may wait."""

    def told(self, message: bytes) -> None:
        """A message, as it was sent."""
        ...

    def confirmed(self) -> None:
        """From now on all messages come."""
        ...

    def lost(self, failure: Exception) -> None:
        """No more comes over this line."""
        ...


class Line:
    """A connection and the channels that are heard on it."""

    def __init__(self, connection: Connection, seconds: float) -> None:
        """`seconds` bounds connecting, and how long the server may leave a question open."""
        self._connection = connection
        self._seconds = seconds
        self.ears: dict[bytes, Ear] = {}
        self._unsent: list[bytes] = []
        self._more = asyncio.Event()
        self._asked: deque[tuple[str, bytes]] = deque()
        """The commands that have no answer yet, with their channels."""
        self._heard = False

    def subscribe(self, channel: bytes, ear: Ear) -> None:
        """Begin to hear a channel; `ear` is told once that is so. Never blocks."""
        self.ears[channel] = ear
        self._say("SSUBSCRIBE", channel)

    def unsubscribe(self, channel: bytes) -> None:
        """Hear a channel no more, at once."""
        del self.ears[channel]
        self._say("SUNSUBSCRIBE", channel)

    async def run(self) -> None:
        """Connect, and hear until the connection is lost. Raises redis-py's errors or OSError; cancel it to hang up."""
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.timeout(self._seconds):
                await self._connection.connect()
            tasks = [asyncio.create_task(work()) for work in (self._listen, self._speak, self._watch)]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._connection.disconnect()

    async def _listen(self) -> None:
        while True:
            try:
                reply = await self._connection.read_response(timeout=inf)
            except redis_errors.ResponseError as refusal:
                self._refused(refusal)
                continue
            self._heard = True
            match reply:
                case [b"smessage", channel, message]:
                    if (ear := self.ears.get(channel)) is not None:
                        ear.told(message)
                case [b"ssubscribe" | b"sunsubscribe" as word, channel, _]:
                    self._answered(word.decode().upper(), channel)
                case _:
                    self._answered("PING", b"")

    async def _speak(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            unsent, self._unsent = self._unsent, []
            await self._connection.send_packed_command(b"".join(unsent), check_health=False)

    async def _watch(self) -> None:
        """Fail when the server says nothing though it was asked."""
        while True:
            self._heard = False
            await asyncio.sleep(self._seconds)
            if not self._heard:
                self._say("PING")
                await asyncio.sleep(self._seconds)
                if not self._heard:
                    raise redis_errors.TimeoutError(f"the server said nothing for {self._seconds} s")

    def _say(self, command: str, channel: bytes = b"") -> None:
        self._asked.append((command, channel))
        self._unsent.append(pack((command, channel) if channel else (command,)))
        self._more.set()

    def _answered(self, command: str, channel: bytes) -> None:
        """The oldest question has its answer; but that a channel is heard no more is also said unasked."""
        if self._asked and self._asked[0] == (command, channel):
            self._asked.popleft()
            if command == "SSUBSCRIBE" and (ear := self.ears.get(channel)) is not None:
                ear.confirmed()
        elif command == "SUNSUBSCRIBE":
            self._lose(channel, redis_errors.ConnectionError("the channel's slot has moved to another node"))
        else:
            raise redis_errors.ConnectionError(f"the server answered {command}, which was not asked")

    def _refused(self, refusal: redis_errors.ResponseError) -> None:
        """The oldest question was refused, which says nothing against the others."""
        if not self._asked:
            raise refusal
        command, channel = self._asked.popleft()
        if command == "SSUBSCRIBE":
            self._lose(channel, refusal)

    def _lose(self, channel: bytes, failure: Exception) -> None:
        ear = self.ears.pop(channel, None)
        if ear is not None:
            ear.lost(failure)


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
