"""The way to the server: a client for every kind of URL, and operations that answer in time or raise StoreUnavailable.

redis-py would retry a command whose reply was late up to ten times, so its own retries are off. `Operation` retries
instead: a bounded number of times, after pauses with jitter, within one deadline for the operation. So never send a
command through it that does harm when it is carried out twice.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from redis import exceptions as redis_errors
from redis.asyncio import RedisCluster
from redis.backoff import AbstractBackoff, FullJitterBackoff

from store.errors import StoreBarred, StoreReadOnly, StoreUnavailable
from store.keys import ShardKeys
from store.redis.client import Client, connect
from store.redis.conditions import ServerHealth, Unwelcome, advice, refuses_writes
from store.redis.nodes import wires_to
from store.redis.wire import Argument, Command
from store.watcher import UNWATCHED, Watcher

__all__ = ["Argument", "Client", "Operation", "Server", "connect"]

P = ParamSpec("P")
T = TypeVar("T")

KNOWN_SECONDS = 30.0
"""How long an estimate of a server's clock is used, before the server is asked again."""

LATE_TRIES = 3
"""How often a call is sent that a server calls late although its caller waits: its clock may have been changed."""


class Server:
    """A Redis server, or several that are one store: every operation ends in time, with a result or an error."""

    def __init__(self, redis: Client, *, timeout_seconds: float, attempts: int, watcher: Watcher = UNWATCHED) -> None:
        """Raises ValueError for limits that leave no attempt or no time."""
        if timeout_seconds <= 0 or attempts < 1:
            raise ValueError(f"timeout_seconds={timeout_seconds} and attempts={attempts} must be positive")
        self._redis = redis
        self.wires = wires_to(redis)
        self.several = isinstance(redis, RedisCluster)
        """Whether shards may be on different nodes."""
        self.timeout_seconds = timeout_seconds
        self.attempts = attempts
        self.watcher = watcher
        self.health = ServerHealth(watcher)
        self.loading = asyncio.Lock()
        """Held while a server is given its scripts."""
        self.ahead: dict[str, tuple[float, float]] = {}
        """By the key of a shard's clock, the least seconds by which its server's clock is ahead of the loop's, and the
        time of that estimate by the loop's clock.
        """

    def note_clock(self, shard: ShardKeys, ms: int) -> None:
        """Note the clock of a shard's server, which a reply that has just arrived gives."""
        now = asyncio.get_running_loop().time()
        self.ahead[shard.clock] = ms / 1000 - now, now

    def operation(self, *, longer: float = 0.0, anyway: bool = False) -> "Operation":
        """`async with server.operation() as operation:` around the commands of one operation.

        It may take `longer` seconds than others, where it waits for something. Raises StoreBarred for a store that this
        process must not use, unless it is to be asked `anyway`.
        """
        if self.health.barred and not anyway:
            raise StoreBarred(self.health.barred)
        return Operation(self, self.timeout_seconds + longer)

    async def run(
        self, work: Callable[Concatenate["Operation", P], Awaitable[T]], *args: P.args, **values: P.kwargs
    ) -> T:
        """The result of one script, or other work, in an operation of its own. Raises its errors."""
        async with self.operation() as operation:
            return await work(operation, *args, **values)

    async def command(self, *args: Argument, at: Argument | None = None) -> Any:
        """The reply to one command in an operation of its own. Raises StoreUnavailable."""
        async with self.operation() as operation:
            return await operation.command(*args, at=at)

    async def row(self, *commands: Command, at: Argument | None = None, ahead: bool = False) -> list[Any]:
        """The replies to a row of commands in an operation of its own. Raises StoreUnavailable."""
        async with self.operation() as operation:
            return await operation.row(*commands, at=at, ahead=ahead)

    async def close(self) -> None:
        await self.wires.close()
        await self._redis.aclose()


class Operation:
    """Some commands under one deadline; turns Redis's errors into StoreUnavailable."""

    backoff: AbstractBackoff = FullJitterBackoff(base=0.02, cap=0.2)

    def __init__(self, server: Server, seconds: float) -> None:
        self._server = server
        self.loading = server.loading
        self._seconds = seconds
        self._deadline = asyncio.timeout(seconds)
        self._last: tuple[Command, Argument | None] = ("PING",), None
        """The first command of the last row, and the key that names its node."""
        self._lates = 0
        self._begun = time.monotonic()
        self._refusal: redis_errors.ConnectionError | None = None
        """The reason why there was no connection for it the last time."""
        self.wrote = False
        """Whether the server took a script that may write."""

    async def command(self, *args: Argument, at: Argument | None = None) -> Any:
        """The reply to one command, which must be harmless to retry. Raises redis-py's errors.

        On a cluster the node that has the command's first key answers; `at` is a key that names the node for a command
        without keys, like INFO. Without any key, it is one node that stays the same.
        """
        return (await self.row(args, at=at))[0]

    async def row(self, *commands: Command, at: Argument | None = None, ahead: bool = False) -> list[Any]:
        """The replies to commands that go over one connection, one after the other, to the node that has the key `at`,
        or the first command's own.

        With `ahead` all are sent at once, and one that is refused doesn't keep the others from being carried out. All
        of it is sent again over another one where that breaks, so all of it must be harmless to retry. Raises
        redis-py's errors.
        """
        failures = 0
        self._last = commands[0], at
        while True:
            try:
                replies = await self._server.wires.row(commands, at, ahead=ahead)
                self._refusal = None
                return replies
            except Unwelcome as error:  # others have all connections, so only time may help
                self._refusal = error
                await asyncio.sleep(self.backoff.compute(self._server.attempts))
            except (redis_errors.ConnectionError, redis_errors.TimeoutError):
                failures += 1
                if failures == self._server.attempts:
                    raise
                await asyncio.sleep(self.backoff.compute(failures - 1))

    async def now_us(self, at: Argument) -> int:
        """The clock of the server that has the key `at`, in µs since 1970. Raises redis-py's errors."""
        seconds, micros = await self.command("TIME", at=at)
        return int(seconds) * 1_000_000 + int(micros)

    async def not_after(self, shard: ShardKeys) -> int:
        """The ms on the clock of a shard's server when this operation is given up, or a little before.

        A server that stood still may carry out a command that its client gave up: the command is in its buffer. So a
        script that hands out or makes something gets this moment, and does nothing later. Replies give an estimate of
        that clock: it was at least that late when the reply arrived. It errs towards too early a moment, by the time
        that the reply travelled at most.
        """
        ahead, learned = self._server.ahead.get(shard.clock, (0.0, -KNOWN_SECONDS))
        if asyncio.get_running_loop().time() - learned >= KNOWN_SECONDS:
            self._server.note_clock(shard, await self.now_us(shard.clock) // 1000)
            ahead, _ = self._server.ahead[shard.clock]
        return int(1000 * (cast(float, self._deadline.when()) + ahead))

    def late(self, shard: ShardKeys, ms: int) -> None:
        """Note the clock of a server that calls `not_after` over; LATE_TRIES times raise StoreUnavailable."""
        self._server.note_clock(shard, ms)
        self._lates += 1
        if self._lates == LATE_TRIES:
            raise StoreUnavailable("the server's clock runs away from what it says")

    async def __aenter__(self) -> Self:
        await self._deadline.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError as late:
            self._server.wires.late(*self._last, self._seconds)
            reason = f"the server did not answer within {self._seconds} s. {advice(late)}"
            if (refusal := self._refusal) is not None:
                reason = f"the server failed: {_sentence(refusal)} {advice(refusal)}"
            raise self._note(StoreUnavailable(reason), "timeout") from late
        if isinstance(error, redis_errors.RedisError):
            refused = StoreReadOnly if refuses_writes(error) else StoreUnavailable
            raise self._note(refused(f"the server failed: {_sentence(error)} {advice(error)}"), "error") from error
        if error is None:
            self._server.health.succeeded(wrote=self.wrote)
            self._server.watcher.took(time.monotonic() - self._begun)

    def _note(self, failure: StoreUnavailable, why: str) -> StoreUnavailable:
        self._server.health.note(failure, why, self._begun)
        return failure


def _sentence(error: object) -> str:
    return f"{str(error).rstrip('. ')}."
