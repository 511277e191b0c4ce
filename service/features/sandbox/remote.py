"""The adapter that speaks to a `harmonium sandbox` elsewhere, over a Unix socket or TCP.

Every request has a time limit. A cell is asked for again by the name of its call until it has ended: a connection that
breaks loses nothing, and nothing runs twice. Never follow a redirect: code that a model wrote would go where the
other side says.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlencode

import msgspec

from service.engine.servers.connection import Broken, ServerConnection
from service.engine.servers.pool import Pool, Unconnected, read_bounded
from service.features.sandbox.folder import parts_of
from service.features.sandbox.local import NAME
from service.features.sandbox.port import (
    Cell,
    Full,
    NoFile,
    OpenedSession,
    Sandbox,
    SessionFile,
    SessionGone,
    SessionLimits,
    Unusable,
)
from service.features.sandbox.settings import UNIX
from service.features.sandbox.wire import STATUS, WAIT_SECONDS, Of, OfFile, Open, Refusal, RunCell, Stop
from service.outgoing import WebAddress

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = WAIT_SECONDS + 20.0
"""How long an answer may take: a cell that runs is answered for within WAIT_SECONDS."""

STALL_SECONDS = 60.0
"""How long a file may pause."""

MAX_ANSWER_BYTES = 64 << 20
"""The largest answer but for files: a cell with all that it may print and show."""

CONNECTIONS = 600
"""Each waiting request for a cell has a connection; there are at most 512 sessions. Any further request waits."""

UNKNOWN = "no-such-session"
"""The name of a session that no sandbox has, and that its refusal names."""

TRIES = 3
"""How often in a row asking for a cell may fail by its connection."""

_REFUSALS = {status: kind for kind, status in STATUS.items()}


class RemoteSandbox(Sandbox):
    """Sessions of a `harmonium sandbox`."""

    def __init__(self, place: str, key: str = "") -> None:
        """`place` is unix:///path, or a URL of a host and a port."""
        self._place, unix = place, place.removeprefix(UNIX) if place.startswith(UNIX) else ""
        self._target = WebAddress.of("http://sandbox" if unix else place.rstrip("/")).target
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._pool = Pool(keeps=False, connect_seconds=CONNECT_SECONDS, unix=unix)
        self._room = asyncio.Semaphore(CONNECTIONS)
        self._stops: dict[asyncio.Task[None], str] = {}
        """The stops under way on behalf of cancelled callers, each with its session."""

    async def start(self) -> None:
        """As the port has it: the other side has proved it before it listens."""
        try:
            await self.files(UNKNOWN)
        except (Full, NoFile, SessionGone) as error:
            if UNKNOWN not in str(error):
                raise Unusable(f"the server at {self._place} is not a sandbox") from error

    async def open(self, session: str, tenant: str, limits: SessionLimits, *, lasting: bool = False) -> OpenedSession:
        if not NAME.fullmatch(session):
            raise ValueError(f"no name of a session: {session[:80]!r}")
        return await self._ask("open", Open(session, tenant, limits, lasting), OpenedSession)

    async def run(self, session: str, call: str, code: str) -> Cell:
        asked = RunCell(session, call, code.encode("utf-8", "replace").decode())
        failed = 0
        try:
            if stopping := [task for task, of in self._stops.items() if of == session]:
                await asyncio.wait(stopping)  # they make room for this one
            while True:
                try:
                    cell = await self._ask("run", asked, Cell | None)
                except Unusable:
                    failed += 1
                    if failed == TRIES:
                        raise
                else:
                    failed = 0
                    if cell is not None:
                        return cell
        except asyncio.CancelledError:
            stopping = asyncio.create_task(self._stop(session, call))
            self._stops[stopping] = session
            stopping.add_done_callback(self._stops.pop)
            raise

    async def stop(self, session: str, call: str) -> None:
        await self._ask("stop", Stop(session, call))

    async def close(self, session: str) -> None:
        await self._ask("close", Of(session))

    async def files(self, session: str) -> list[SessionFile]:
        return await self._ask("files", Of(session), list[SessionFile])

    async def read(self, session: str, path: str) -> AsyncIterator[bytes]:
        parts_of(path)
        async with self._answer("read", msgspec.json.encode(OfFile(session, path)), STALL_SECONDS) as connection:
            if connection.answer.status != 200:
                await self._check(connection, None)
            while True:
                async with asyncio.timeout(STALL_SECONDS):
                    part = await connection.read()
                if not part:
                    return
                yield part

    async def write(self, session: str, path: str, content: AsyncIterator[bytes]) -> SessionFile:
        parts_of(path)
        verb = f"write?{urlencode({'session': session, 'path': path})}"
        async with self._answer(verb, content, STALL_SECONDS) as connection:
            return await self._check(connection, SessionFile)

    async def remove(self, session: str, path: str) -> None:
        parts_of(path)
        await self._ask("remove", OfFile(session, path))

    async def aclose(self) -> None:
        """As the port has it: sessions stay, for others of this service, until they are idle."""
        await asyncio.gather(*self._stops, return_exceptions=True)
        await self._pool.close()

    async def _stop(self, session: str, call: str) -> None:
        """Stop a call on behalf of a cancelled caller: if the sandbox can't be told, the call's time ends it."""
        with suppress(Exception):
            await self.stop(session, call)

    async def _ask(self, verb: str, asked: msgspec.Struct, kind: Any = None) -> Any:
        """The answer to a verb, of this kind. Raises the port's errors."""
        async with self._answer(verb, msgspec.json.encode(asked), ANSWER_SECONDS) as connection:
            return await self._check(connection, kind)

    @asynccontextmanager
    async def _answer(
        self, verb: str, body: bytes | AsyncIterator[bytes], seconds: float
    ) -> AsyncGenerator[ServerConnection]:
        """The connection with the head of the answer, which comes within so many seconds, or where a file is sent, as
        long after each of its parts. Raises Unusable where there is none, or where it breaks.
        """
        asked = ("POST", self._target, f"/v1/{verb}", self._headers)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._room.acquire()
            try:
                if isinstance(body, bytes):
                    async with asyncio.timeout(seconds):
                        connection = await self._pool.send(*asked, body)
                else:
                    connection = await self._pool.send_parts(*asked, body, stall_seconds=seconds)
                try:
                    yield connection
                finally:
                    connection.leave()
            finally:
                self._room.release()
        except Unconnected as error:
            raise Unusable(f"the sandbox at {self._place} can't be reached: {error.__cause__ or error}") from error
        except (Broken, TimeoutError) as error:
            raise Unusable(f"the sandbox at {self._place} doesn't answer: {type(error).__name__}") from error

    async def _check(self, connection: ServerConnection, kind: Any) -> Any:
        """The object of a good answer. Raises the port's errors, Unusable where no sandbox would answer so."""
        async with asyncio.timeout(ANSWER_SECONDS):
            body = await read_bounded(connection.read, MAX_ANSWER_BYTES)
        if len(body) > MAX_ANSWER_BYTES:
            raise Unusable(f"the sandbox's answer has more than {MAX_ANSWER_BYTES:,} bytes")
        status = connection.answer.status
        try:
            said = msgspec.json.decode(body, type=kind if status < 300 else Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unusable(f"the server at {self._place} is not a sandbox") from error
        if status >= 300:
            raise _REFUSALS.get(status, Unusable)(said.message)
        return said
