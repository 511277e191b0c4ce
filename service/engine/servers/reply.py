"""The answer to a request that is passed on, as it comes over the connection."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from service.engine.connections.connection import Connection
from service.engine.pass_through import PassedUsage
from service.engine.port import EngineError, EngineUnavailable
from service.engine.servers.passed_events import PassedEvents, UsageFound
from service.engine.servers.whole import Whole

BROKEN = OSError
"""What a connection may raise."""

ACCEPTED = "application/json, text/event-stream"
EVENTS = "text/event-stream"
JSON = "application/json"

TAIL_SECONDS = 1
"""How long the end of a stream may take that has said all."""


class ServerReply:
    """An answer with status 200, whose body is unread."""

    def __init__(
        self,
        name: str,
        connection: Connection,
        hidden: list[str],
        broken: Callable[[], EngineUnavailable],
    ) -> None:
        """`hidden` is what nobody may see of what the server says; `broken` notes that the connection broke, and says
        what that is. Raises EngineError for an answer that nobody asked for.
        """
        answer = connection.answer
        encoding = answer.headers.get("content-encoding", "identity")
        if answer.content_type not in (EVENTS, JSON) or encoding != "identity":
            raise EngineError(f"the {name} server answered with something that is neither JSON nor a stream of events")
        self.events = answer.content_type == EVENTS
        self._connection = connection
        self._broken = broken
        self._read = PassedEvents(name, hidden)
        self._found = UsageFound()

    @property
    def usage(self) -> PassedUsage | None:
        """See the port."""
        return self._found.usage

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See the port."""
        while piece := await self._next():
            if self.events:
                piece = self._read.feed(piece)
            self._found.look(piece)
            if piece:
                yield piece
            if self.events:
                self._read.check()
                if self._read.done:
                    return
        if self.events:
            self._read.end()

    async def end(self) -> None:
        """See the port."""
        with suppress(BROKEN):
            async with asyncio.timeout(TAIL_SECONDS):
                await self._connection.read()

    async def _next(self) -> bytes:
        """The next bytes, none at their end. Raises EngineUnavailable."""
        try:
            return await self._connection.read()
        except BROKEN as error:
            raise self._broken() from error


class FoldedReply:
    """A stream as one answer."""

    events = False

    def __init__(self, name: str, stream: ServerReply) -> None:
        self._stream = stream
        self._whole = Whole(name)

    @property
    def usage(self) -> PassedUsage | None:
        """See the port."""
        return self._stream.usage

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """See the port."""
        async with aclosing(self._stream.pieces()) as pieces:
            async for piece in pieces:
                self._whole.feed(piece)
        yield self._whole.answer()

    async def end(self) -> None:
        """See the port."""
        await self._stream.end()
