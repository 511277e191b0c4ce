"""Wires: the connections to one server. All short rows of commands share one; others carry one row at a time.

Over a wire any number of callers send, and the server's replies come in the order of the commands. All that one turn of
the event loop asks is one write. redis-py makes the connection and greets the server (client.py); from then on the wire
reads and writes by itself, with commands packed and replies parsed in C.

A caller that gives up leaves its place in the order, and nobody gets its reply. Commands that wait in the server, and
those with large values, would hold up all behind them, so their rows go apart. A wire that is lost fails all who wait
on it. Never retry a command here.

A failover behind one address (DNS, a virtual IP, a proxy) leaves the connections to the former primary open, and it
answers over them: only a refused write shows that. From then on only rows that are under way go over them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from operator import itemgetter
from typing import Any, cast

import hiredis
from redis import exceptions as redis_errors
from redis._parsers import BaseParser
from redis.asyncio.connection import AbstractConnection

from store.redis.conditions import NotPrimary, Unwelcome, ended, misled

Argument = str | bytes | int
Command = tuple[Argument, ...]

MOST_UNANSWERED = 128
"""The most rows without a reply on a wire: others wait, and go in the order in which they came."""

SHORT_BYTES = 64 * 1024
"""The most bytes of a row that shares a wire, which keeps at most MOST_UNANSWERED times as many for its server."""

WAITING = {"WAIT", "WAITAOF"}
APART = {"MGET", "XRANGE", *WAITING}
"""The commands of the store that wait in the server, and with them those whose replies may have many values."""

CLOSED = "Connection closed by server."
INCOMPLETE = object()

pack = cast(Callable[[Command], bytes], hiredis.pack_command)  # pyright: ignore[reportUnknownMemberType]
refusal_of = cast(Callable[[str], Exception], BaseParser.parse_error)  # pyright: ignore[reportUnknownMemberType]


class Wire(asyncio.Protocol):
    """One connection, from the moment when it is wanted until it is lost. Commands may be sent before it is there."""

    def __init__(self, connection: AbstractConnection) -> None:
        """Begin to connect, in the task `opening`."""
        self._loop = asyncio.get_running_loop()
        self.writer: asyncio.StreamWriter | None = None
        """None until the server was greeted, and when the connection is lost."""
        self._reader = hiredis.Reader(redis_errors.InvalidResponse, refusal_of, notEnoughData=INCOMPLETE)
        self._unsent: list[bytes] = []
        self._heard = self._loop.time()
        self.failure: Exception | None = None
        """The error that it was lost by."""
        self.opening = self._loop.create_task(self._open(connection))

    def silent(self, seconds: float) -> bool:
        """Whether nothing has come for so long."""
        return self._loop.time() - self._heard >= seconds

    def send(self, piece: bytes) -> None:
        """Send packed commands, together with all others of this turn of the loop. Never blocks."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(piece)

    def take(self, replies: list[Any]) -> None:
        """Take the next replies. Raises RedisError for one that nobody asked for, which loses the wire."""
        raise NotImplementedError

    def lose(self, failure: Exception) -> None:
        """Close it. Never blocks."""
        if self.failure is None:
            self.failure = failure
            self.opening.cancel()
            self._unsent.clear()
            if self.writer is not None:
                self.writer.transport.abort()
                self.writer = None

    async def _open(self, connection: AbstractConnection) -> None:
        """Connect, greet the server, and take over from redis-py's reader."""
        try:
            await connection.connect()
            if await connection.can_read():
                raise redis_errors.ConnectionError(CLOSED)
            self.writer, connection._writer = connection._writer, None  # pyright: ignore[reportPrivateUsage]
            cast(asyncio.StreamWriter, self.writer).transport.set_protocol(self)
            self._heard = self._loop.time()
            self._flush()
        except Exception as failure:  # also for a bug: else the callers would wait for nothing
            self.lose(Unwelcome(str(failure)) if ended(failure) else failure)
        finally:
            await connection.disconnect(nowait=True)

    def _flush(self) -> None:
        if self.writer is not None and self._unsent:
            self.writer.transport.write(b"".join(self._unsent))
            self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        try:
            self._reader.feed(data)
            self.take(list(iter(self._reader.gets, INCOMPLETE)))
        except redis_errors.RedisError as strange:
            self.lose(redis_errors.ConnectionError(str(strange)))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose(redis_errors.ConnectionError(f"Connection lost: {exc}" if exc else CLOSED))


class RowWire(Wire):
    """A wire for rows of commands."""

    def __init__(self, connection: AbstractConnection, replaced: Callable[[], None]) -> None:
        """`replaced` is called once its server is found to be no primary any more."""
        super().__init__(connection)
        self._replaced = replaced
        self.rows: deque[tuple[asyncio.Future[list[Any]], int]] = deque()
        """The rows without all of their replies, each with how many these are."""
        self._received: list[Any] = []
        """The replies to the first of them, so far."""
        self._room = asyncio.Semaphore(MOST_UNANSWERED)
        self.leaving = False
        """Whether no more rows may be sent."""

    async def row(self, commands: Sequence[bytes], *, ahead: bool) -> list[Any]:
        """The replies to packed commands, as Operation.row says. Raises redis-py's errors, and NotPrimary."""
        replies: list[Any] = []
        together = ahead or len(commands) == 1
        for piece, count in [(b"".join(commands), len(commands))] if together else [(each, 1) for each in commands]:
            await self._room.acquire()
            if self.leaving:
                self._room.release()
                raise self.failure or redis_errors.ConnectionError(CLOSED)
            answered: asyncio.Future[list[Any]] = self._loop.create_future()
            self.rows.append((answered, count))
            self.send(piece)
            replies += await answered
            for reply in replies:
                if isinstance(reply, Exception):
                    raise self._refusal(reply)
        return replies

    def _refusal(self, reply: Exception) -> Exception:
        """The error that a reply raises, once all know that the server is no primary any more, where it says so."""
        if isinstance(reply, redis_errors.ConnectionError):  # it is loading, or wants to be greeted again
            self.lose(reply)
        elif isinstance(reply, redis_errors.ResponseError) and misled(reply):
            if not self.leaving:  # else somebody else has found that out
                self._replaced()
            return NotPrimary(str(reply))
        return reply

    def take(self, replies: list[Any]) -> None:
        for reply in replies:
            if not self.rows:
                raise redis_errors.InvalidResponse("a reply that nobody asked for")
            self._received.append(reply)
            answered, count = self.rows[0]
            if len(self._received) == count:
                self.rows.popleft()
                if not answered.done():  # else its caller has given up
                    answered.set_result(self._received)
                self._received = []
                self._room.release()  # last, as this reply may say that no more rows may go over it
        if self.leaving:
            self.leave()

    def leave(self) -> None:
        """Take no more rows, and close it once those under way have their replies."""
        self.leaving = True
        if not self.rows:
            self.lose(redis_errors.ConnectionError(CLOSED))

    def lose(self, failure: Exception) -> None:
        super().lose(failure)
        self.leaving = True
        for answered, _ in self.rows:
            self._room.release()
            if not answered.done():
                answered.set_exception(failure)
        self.rows.clear()


class Wires:
    """The wires to one server."""

    def __init__(
        self, connect: Callable[[], AbstractConnection], most: int, replaced: Collection[Callable[[], None]] = ()
    ) -> None:
        """At most `most` wires, two at least. All of `replaced` are called where the server is no primary any more."""
        self.most = most
        self._connect = connect
        self._replaced = replaced
        self._room = asyncio.Semaphore(max(1, most - 1))
        self._wires: set[RowWire] = set()
        """All of them, with some that are lost."""
        self._shared: RowWire | None = None
        self._idle: list[RowWire] = []
        self._closed = False

    def row(self, commands: Sequence[Command], at: Argument | None = None, *, ahead: bool) -> Awaitable[list[Any]]:
        """The replies to commands, as Operation.row says; one server has all keys, so `at` says nothing.

        Without `ahead` an error ends the row; with it the first one is raised. Raises NotPrimary for a server that is
        no primary any more, ConnectionError or TimeoutError where a retry may help, and other errors of redis-py.
        """
        packed = list(map(pack, commands))
        if sum(map(len, packed)) <= SHORT_BYTES and APART.isdisjoint(map(itemgetter(0), commands)):
            if self._shared is None or self._shared.leaving:
                self._shared = self._idle_or_new()
            return self._shared.row(packed, ahead=ahead)
        return self._apart(packed, waits=any(each[0] in WAITING for each in commands), ahead=ahead)

    async def _apart(self, packed: Sequence[bytes], *, waits: bool, ahead: bool) -> list[Any]:
        async with self._room:
            wire = self._idle_or_new()
            try:
                return await wire.row(packed, ahead=ahead)
            except Unwelcome:  # the server is full, so one that there is has to do, where that holds up nobody
                if waits or self._shared is None or self._shared.writer is None:
                    raise
                return await self._shared.row(packed, ahead=ahead)
            finally:
                if wire.rows:
                    wire.lose(redis_errors.ConnectionError("its caller gave up"))
                else:
                    self._idle.append(wire)

    def _leave(self) -> None:
        """Use none of the wires again, as they lead to a server that is no primary any more."""
        for each in self._wires:
            each.leave()
        for tell in tuple(self._replaced):
            tell()

    def late(self, command: Command, at: Argument | None, seconds: float) -> None:
        """Note that an operation ran out of its `seconds`. Where nothing came over the shared wire for half of it, all
        silent ones may lead to a server that hangs, while the address leads to another one by now.
        """
        hangs = self._shared is None or self._shared.silent(seconds / 2)
        for wire in self._wires:
            if (hangs or wire.leaving) and wire.silent(seconds / 2):
                wire.lose(redis_errors.TimeoutError("the server said nothing"))

    def close(self) -> asyncio.Future[list[Any]]:
        """Close all wires, and make no more. Wait for the result to have those closed that are being opened."""
        self._closed = True
        for wire in self._wires:
            wire.lose(redis_errors.ConnectionError("closed"))
        return asyncio.gather(*(wire.opening for wire in self._wires), return_exceptions=True)

    def _idle_or_new(self) -> RowWire:
        """The idle wire that was used last, or a new one. Raises ConnectionError."""
        if self._closed:
            raise redis_errors.ConnectionError("closed")
        while self._idle:
            if not (wire := self._idle.pop()).leaving:
                return wire
        self._wires = {wire for wire in self._wires if wire.failure is None or not wire.opening.done()}
        self._wires.add(wire := RowWire(self._connect(), self._leave))
        return wire
