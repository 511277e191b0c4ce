"""The way to the server: a pool that never hangs, and commands that answer in time or raise StoreUnavailable.

redis-py would repeat a command whose reply was late up to ten times, so its own retries are off. `Operation`
repeats instead: a bounded number of times, with a jittered pause, within one deadline for the whole
operation. Hence the rule: never send a command through it that does harm when it is carried out twice.
"""

import asyncio
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self, cast

import hiredis
from redis import exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .errors import StoreUnavailable

RESP = 2
"""The protocol's version, pinned as reply shapes differ: 2 has all we need, and needs no greeting."""

MAX_PAUSE_SECONDS = 0.2
FIRST_PAUSE_SECONDS = 0.02
"""The longest pause before the first repeat; each further one may be twice as long, up to the maximum."""

Argument = str | bytes | int

_pack = cast(Callable[[tuple[Argument, ...]], bytes], hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]


class Connection(Protocol):
    """What is used of a redis-py connection: it reconnects by itself, and closes when it is cut short."""

    async def send_packed_command(self, command: bytes) -> None: ...
    async def read_response(self) -> Any: ...


class Pool(Protocol):
    """What is used of a redis-py connection pool."""

    async def get_connection(self) -> Connection: ...
    async def release(self, connection: Connection) -> None: ...


def connect(url: str, *, max_connections: int = 64, timeout_seconds: float = 2.0) -> Redis:
    """A client for redis://, rediss:// or unix:// whose commands wait for a free connection.

    `timeout_seconds` bounds that wait, and connecting. Replies have no limit here: an Operation's deadline
    covers them, and redis-py's limit per reply would cost a task each. Nothing is connected yet. Close it
    with `aclose()`.
    """
    pool = BlockingConnectionPool.from_url(  # pyright: ignore[reportUnknownMemberType]
        url,
        max_connections=max_connections,
        timeout=timeout_seconds,
        socket_timeout=None,
        socket_connect_timeout=timeout_seconds,
        protocol=RESP,
        decode_responses=False,
        retry=Retry(NoBackoff(), 0),
    )
    return Redis.from_pool(pool)


class Server:
    """A Redis server as the store sees it: every operation is over in time, one way or the other."""

    def __init__(self, redis: Redis, *, timeout_seconds: float, attempts: int) -> None:
        """Raises ValueError for limits that leave no attempt or no time."""
        if timeout_seconds <= 0 or attempts < 1:
            raise ValueError(f"timeout_seconds={timeout_seconds} and attempts={attempts} must be positive")
        self._redis = redis
        self._pool = cast(Pool, redis.connection_pool)
        self._timeout_seconds = timeout_seconds
        self._attempts = attempts

    def operation(self) -> "Operation":
        """`async with server.operation() as operation:` around the commands of one operation."""
        return Operation(self._pool, self._timeout_seconds, self._attempts)

    async def close(self) -> None:
        """Close all connections."""
        await self._redis.aclose()


class Operation:
    """Some commands in a row on one connection, under one deadline; and where Redis's errors become ours.

    It packs its commands in C and speaks to the connection itself, as the client's own `execute_command` takes
    twice as long. A task that is cancelled between a command and its reply closes the connection, so that
    nobody else can read that reply.
    """

    def __init__(self, pool: Pool, timeout_seconds: float, attempts: int) -> None:
        self._pool = pool
        self._timeout_seconds = timeout_seconds
        self._deadline = asyncio.timeout(timeout_seconds)
        self._attempts = attempts
        self._connection: Connection | None = None

    async def command(self, *args: Argument) -> Any:
        """The reply to one command, which must be harmless to repeat. Raises redis-py's errors."""
        for attempt in range(1, self._attempts):
            try:
                return await self._attempt(args)
            except (redis_errors.ConnectionError, redis_errors.TimeoutError):
                pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
                await asyncio.sleep(pause * random.random())
        return await self._attempt(args)

    async def _attempt(self, args: tuple[Argument, ...]) -> Any:
        if self._connection is None:
            self._connection = await self._pool.get_connection()
        await self._connection.send_packed_command(_pack(args))
        return await self._connection.read_response()

    async def __aenter__(self) -> Self:
        await self._deadline.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._deadline.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise StoreUnavailable(f"the server did not answer within {self._timeout_seconds} s") from late
        finally:
            if self._connection is not None:
                await self._pool.release(self._connection)
        if isinstance(error, redis_errors.RedisError):
            raise StoreUnavailable(f"the server failed: {error}") from error
