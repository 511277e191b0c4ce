"""Line: one connection on which any number of channels are heard, from its making to its loss.

Redis's sharded channels, so that on a cluster only the node that has a channel's slot hears of its messages, and on one
server all the same. Commands and their answers keep their order, and whatever else comes is a message, or the news that
a channel has moved to another node. A server that says nothing is asked whether it is there: one that hangs
would go unnoticed otherwise.

A line that fails is done with: it never connects again (listening.py makes the next). Never wait for an ear here: one
that is slow must cost nobody else anything.
"""

import asyncio
from collections import deque
from math import inf
from typing import Protocol

from redis import exceptions as redis_errors

from .links import pack
from .places import Connection


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
