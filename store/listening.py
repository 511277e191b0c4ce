"""Listening: messages on channels of Redis, for any number of listeners over one connection of the process.

There is one connection to each node that has a wanted channel, and one subscription to a channel however many listen.
A channel keeps nothing: a listener that is absent or too slow misses messages. So it learns when it may have missed
some, and then reads the state that they announce. Subscribe first, then read, then listen.

The channels are Redis's sharded ones: on a cluster only the node that has a channel's slot gets its messages. Replies
keep the order of the commands; anything else is a message, or says that a channel has moved to another node. A server
that sends nothing is asked for a sign of life, as one that hangs would go unnoticed.

A subscribed connection can do nothing else. So it is made beside the commands' wires, and never counts as one of
theirs. One that fails is replaced, after a pause that grows, for as long as anybody listens. Why this is not
redis-py's PubSub: docs/decisions/0021-connections-to-redis-are-our-own.md. Never keep messages without a bound, and
never let one listener hold up another.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from redis import exceptions as redis_errors
from redis.asyncio import RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.backoff import FullJitterBackoff

from store.errors import StoreUnavailable
from store.redis.client import Client, PrimaryPool
from store.redis.conditions import NotPrimary, misled
from store.redis.nodes import Nodes, connector
from store.redis.wire import Wire, pack

WRITING = "#!lua flags=allow-oom\nreturn 1"
"""A script that only a primary runs, although it writes nothing: nobody publishes at a server that is none."""


class SubscribedWire(Wire):
    """A wire, and the channels that are subscribed on it."""

    def __init__(self, connection: AbstractConnection, seconds: float) -> None:
        """`seconds` bounds connecting, and how long the server may leave a command unanswered."""
        super().__init__(connection)
        self._seconds = seconds
        self._subscriptions: dict[bytes, _Subscription] = {}
        self._unanswered: deque[tuple[str, bytes]] = deque()
        """The commands that have no reply yet, with their channels."""
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._send("EVAL", WRITING, 0)

    def subscribe(self, subscription: "_Subscription") -> None:
        """Subscribe to a channel, and say so once that is confirmed. Never blocks."""
        self._subscriptions[subscription.name] = subscription
        self._send("SSUBSCRIBE", subscription.name)

    def unsubscribe(self, subscription: "_Subscription") -> None:
        del self._subscriptions[subscription.name]
        self._send("SUNSUBSCRIBE", subscription.name)

    async def run(self) -> None:
        """Ask for signs of life until the wire is lost, and raise its failure. Cancel it to close the wire."""
        try:
            while self.failure is None:
                asked = self._unanswered[0] if self._unanswered else None
                await asyncio.wait([self._over], timeout=self._seconds)
                if not self._unanswered:
                    self._send("PING")
                elif self._unanswered[0] is asked and self.silent(self._seconds):
                    raise redis_errors.TimeoutError(f"the server said nothing for {self._seconds} s")
            raise self.failure
        finally:
            self.lose(redis_errors.ConnectionError("closed"))
            await asyncio.wait([self.opening])

    def take(self, replies: list[Any]) -> None:
        """Pass each message on, and note which command another reply is for."""
        for reply in replies:
            match reply:
                case [b"smessage", channel, message]:
                    if (subscription := self._subscriptions.get(channel)) is not None:
                        for listener in subscription.listeners:
                            listener.tell(message)
                case [b"ssubscribe" | b"sunsubscribe" as word, channel, _]:
                    self._answered(word.decode().upper(), channel)
                case redis_errors.ResponseError():
                    self._refused(reply)
                case _:
                    self._answered(*(self._unanswered[0] if self._unanswered else ("PING", b"")))

    def lose(self, failure: Exception) -> None:
        super().lose(failure)
        self._over.cancel()

    def _send(self, command: str, channel: str | bytes = b"", *rest: int) -> None:
        self._unanswered.append((command, cast(bytes, channel)))
        self.send(pack((command, channel, *rest) if channel else (command,)))

    def _answered(self, command: str, channel: bytes) -> None:
        """Note the reply to the oldest command. Only an unsubscription may come unasked."""
        if self._unanswered and self._unanswered[0] == (command, channel):
            self._unanswered.popleft()
            if command == "SSUBSCRIBE" and (subscription := self._subscriptions.get(channel)) is not None:
                subscription.confirmed()
        elif command == "SUNSUBSCRIBE":
            self._lose(channel, redis_errors.ConnectionError("the channel's slot has moved to another node"))
        else:
            raise redis_errors.ConnectionError(f"the server answered {command}, which was not asked")

    def _refused(self, refusal: redis_errors.ResponseError) -> None:
        """Note the refusal of the oldest command; the others stand, unless the server is no primary."""
        if not self._unanswered:
            raise refusal
        command, channel = self._unanswered.popleft()
        if command == "SSUBSCRIBE":
            self._lose(channel, refusal)
        elif misled(refusal):
            raise NotPrimary(str(refusal)) from refusal

    def _lose(self, channel: bytes, failure: Exception) -> None:
        if (subscription := self._subscriptions.pop(channel, None)) is not None:
            subscription.lose([subscription], failure)


MAX_WAITING = 64
"""The most messages that wait for one listener; with one more all of them go, and it lags."""

MAX_WAITING_BYTES = 256 * 1024
"""The most bytes of them: some hundred times the bytes that come while a listener is at work. A larger message is
never passed on."""

BACKOFF = FullJitterBackoff(base=0.05, cap=1.0)
"""The pauses in seconds before a subscription that failed is made again."""

MOST_DOUBLINGS = 10
"""More failures in a row make the pause no longer; without a bound its power of two is too large for a float."""


class Listener:
    """A listener to a channel."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._lagging = False
        self._closed = False
        self._woken = asyncio.Event()

    async def messages(self, seconds: float) -> list[bytes] | None:
        """The messages since the last call, oldest first; waits `seconds` for them at most.

        Empty when none came in time, or at `wake`. None when some may have been missed: read now the state that they
        announce. Raises StoreUnavailable after `Listening.close`.
        """
        if not (self._waiting or self._lagging or self._closed):
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._woken.wait()
        if self._closed:
            raise StoreUnavailable("listening was closed")
        if self._lagging:
            self._lagging = False
            return None
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        return waiting

    def wake(self) -> None:
        self._woken.set()

    def tell(self, message: bytes) -> None:
        if len(self._waiting) >= MAX_WAITING or self._bytes + len(message) > MAX_WAITING_BYTES:
            self.miss()
        else:
            self._waiting.append(message)
            self._bytes += len(message)
            self.wake()

    def miss(self) -> None:
        """Note that messages may have been missed, and drop those that wait."""
        self._waiting.clear()
        self._bytes = 0
        self._lagging = True
        self.wake()

    def begin(self) -> None:
        """Note that the subscription is confirmed: nothing was read yet, so nothing has been missed."""
        self._lagging = False

    def close(self) -> None:
        self._closed = True
        self.wake()


class _Subscription:
    """One channel, and all its listeners in this process."""

    def __init__(self, channel: str, lose: Callable[[Sequence["_Subscription"], Exception], None]) -> None:
        self.channel = channel
        self.name = channel.encode()
        self.listeners: set[Listener] = set()
        self.connection: SubscribedWire | None = None
        self.node = ""
        """The name of the node where it was tried last."""
        self.failures = 0
        """How often in a row it failed, MOST_DOUBLINGS at most."""
        self.failure: Exception | None = None
        self.stands = asyncio.Event()
        self.lose = lose

    def confirmed(self) -> None:
        """Note that all messages come from now on; earlier ones may be lost."""
        self.failures, self.failure = 0, None
        self.stands.set()
        for listener in self.listeners:
            listener.miss()

    def fail(self, failure: Exception) -> None:
        """Note the failure, after which it has to be made again."""
        self.connection = None
        self.failures = min(MOST_DOUBLINGS, self.failures + 1)
        self.failure = failure
        self.stands.clear()


class Listening:
    """Listens to channels. It connects to nobody before the first one is wanted."""

    def __init__(self, redis: Client, *, timeout_seconds: float = 2.0) -> None:
        """Close it before `redis` (see client.connect), whose connections it leaves alone.

        Subscribing takes `timeout_seconds` at most, and a server may be silent for twice as long.
        """
        self._place = Nodes(redis) if isinstance(redis, RedisCluster) else redis.connection_pool
        if isinstance(self._place, PrimaryPool):
            self._place.replaced.add(self._leave)
        self._seconds = timeout_seconds
        self._subscriptions: dict[str, _Subscription] = {}
        self._connections: dict[str, SubscribedWire] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    @asynccontextmanager
    async def channel(self, name: str) -> AsyncGenerator[Listener]:
        """Listen to a channel. Every message from now on comes to the listener, or makes it lag.

        Raises StoreUnavailable when the server doesn't confirm that in time.
        """
        if self._closed:
            raise StoreUnavailable("listening was closed")
        if (subscription := self._subscriptions.get(name)) is None:
            subscription = self._subscriptions[name] = _Subscription(name, self._lose)
            self._spawn(self._subscribe([subscription], 0.0))
        listener = Listener()
        subscription.listeners.add(listener)
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    await subscription.stands.wait()
            except TimeoutError as late:
                reason = subscription.failure or late
                raise StoreUnavailable(f"not subscribed within {self._seconds} s: {reason}") from reason
            listener.begin()
            yield listener
        finally:
            subscription.listeners.discard(listener)
            if not subscription.listeners:
                del self._subscriptions[name]
                if subscription.connection is not None:
                    subscription.connection.unsubscribe(subscription)

    async def close(self) -> None:
        """Close the connections. The next call for messages of any listener raises StoreUnavailable."""
        self._closed = True
        if isinstance(self._place, PrimaryPool):
            self._place.replaced.discard(self._leave)
        for subscription in self._subscriptions.values():
            for listener in subscription.listeners:
                listener.close()
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _leave(self) -> None:
        """Make every connection anew: somebody found that the address has led to a server that is no primary."""
        for wire in self._connections.values():
            wire.lose(NotPrimary("the server may no longer be the primary"))

    def _lose(self, group: Sequence[_Subscription], failure: Exception) -> None:
        """Make subscriptions that failed together again, together, after a pause."""
        for subscription in group:
            subscription.fail(failure)
            if isinstance(self._place, Nodes):
                self._place.doubt(subscription.node)  # any other new connection finds the primary by itself
        pause = BACKOFF.compute(max(subscription.failures for subscription in group) - 1)
        self._spawn(self._subscribe(group, pause))

    async def _subscribe(self, group: Sequence[_Subscription], pause: float) -> None:
        """After a pause of some seconds, make each subscription that is still wanted, on the connection to its node."""
        await asyncio.sleep(pause)
        for at, subscription in enumerate(group):
            try:
                async with asyncio.timeout(self._seconds):
                    node, connect = await self._node_of(subscription.channel)
            except (redis_errors.RedisError, OSError) as failure:
                self._lose(group[at:], failure)
                return
            if self._subscriptions.get(subscription.channel) is subscription:  # somebody still listens
                subscription.node = node
                if (connection := self._connections.get(node)) is None:
                    connection = self._connections[node] = SubscribedWire(connect(), self._seconds)
                    self._spawn(self._run(node, connection))
                subscription.connection = connection
                connection.subscribe(subscription)

    async def _node_of(self, channel: str) -> tuple[str, Callable[[], AbstractConnection]]:
        """The name of the primary that has a channel, '' of the only one, and a function that makes a connection to it.
        Raises ConnectionError of redis-py where none is known.
        """
        if not isinstance(self._place, Nodes):
            return "", self._place.make_connection  # which asks the Sentinels, if any
        node = await self._place.of(channel)
        return node.name, connector(node)

    async def _run(self, node: str, connection: SubscribedWire) -> None:
        try:
            await connection.run()
        except (redis_errors.RedisError, OSError) as failure:
            if lost := [each for each in self._subscriptions.values() if each.connection is connection]:
                self._lose(lost, failure)
        finally:
            del self._connections[node]

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
