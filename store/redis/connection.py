"""The way to the server: a client for every kind of URL, and operations that answer in time or raise StoreUnavailable.

redis-py would retry a command whose reply was late up to ten times, so its own retries are off. `Operation` retries
instead: a bounded number of times, after pauses with jitter, within one deadline for the operation. So never send a
command through it that does harm when it is carried out twice.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from redis import exceptions as redis_errors
from redis.backoff import AbstractBackoff, FullJitterBackoff

from store.errors import StoreUnavailable
from store.redis.client import Client, connect
from store.redis.links import Argument, Link, links_of

__all__ = ["Argument", "Client", "Operation", "Server", "connect"]

Failed = Callable[[str], None]


def _nobody_listens(why: str) -> None:
    """The callback of a Server before it is set."""


class Server:
    """A Redis server, or several that are one store: every operation ends in time, with a result or an error.

    As many operations run at once as there may be connections; others wait, within their time. The semaphore is here
    because some of redis-py's pools refuse at their limit, and the one that waits uses asyncio.Condition, which before
    Python 3.13 can lose a notification to a waiter that is cancelled.
    """

    def __init__(self, redis: Client, *, timeout_seconds: float, attempts: int) -> None:
        """Raises ValueError for limits that leave no attempt or no time."""
        if timeout_seconds <= 0 or attempts < 1:
            raise ValueError(f"timeout_seconds={timeout_seconds} and attempts={attempts} must be positive")
        self._redis = redis
        self._new_link, limit = links_of(redis)
        self._room = asyncio.Semaphore(limit)
        self._timeout_seconds = timeout_seconds
        self._attempts = attempts
        self.failed: Failed = _nobody_listens
        """Called for every operation that raises StoreUnavailable, with the reason: `timeout` or `error`."""

    def operation(self) -> "Operation":
        """`async with server.operation() as operation:` around the commands of one operation."""
        return Operation(self._new_link(), self._room, self._timeout_seconds, self._attempts, self.failed)

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()


class Operation:
    """Some commands in a row over one link, under one deadline; turns Redis's errors into StoreUnavailable."""

    backoff: AbstractBackoff = FullJitterBackoff(base=0.02, cap=0.2)
    """The pauses before retries, in seconds."""

    def __init__(
        self,
        link: Link,
        room: asyncio.Semaphore,
        timeout_seconds: float,
        attempts: int,
        failed: Failed = _nobody_listens,
    ) -> None:
        self._link = link
        self._failed = failed
        self._room = room
        self._entered = False
        self._timeout_seconds = timeout_seconds
        self._deadline = asyncio.timeout(timeout_seconds)
        self._attempts = attempts

    async def command(self, *args: Argument, at: Argument | None = None) -> Any:
        """The reply to one command, which must be harmless to retry. Raises redis-py's errors.

        On a cluster the node that has the command's first key answers; `at` is a key that names the node for a command
        without keys, like INFO. Without any key, it is one node that stays the same.
        """
        for failures in range(self._attempts - 1):
            try:
                return await self._attempt(args, at)
            except (redis_errors.ConnectionError, redis_errors.TimeoutError):
                await asyncio.sleep(self.backoff.compute(failures))
        return await self._attempt(args, at)

    async def _attempt(self, args: tuple[Argument, ...], at: Argument | None) -> Any:
        if not self._entered:
            await self._room.acquire()
            self._entered = True
        return await self._link.ask(args, at)

    async def __aenter__(self) -> Self:
        await self._deadline.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError as late:
            self._link.late()
            self._failed("timeout")
            raise StoreUnavailable(f"the server did not answer within {self._timeout_seconds} s") from late
        finally:
            try:
                await self._link.close()
            finally:
                if self._entered:
                    self._room.release()
        if isinstance(error, redis_errors.RedisError):
            self._failed("error")
            raise StoreUnavailable(f"the server failed: {error}") from error
