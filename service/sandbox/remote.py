"""The adapter that speaks to a `harmonium sandbox` elsewhere, over a Unix socket or TCP.

Every request has a time limit. A cell is asked for again by the name of its call until it has ended: a connection that
breaks loses nothing, and nothing runs twice. Never follow a redirect: code that a model wrote would go where the
other side says.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, UnixConnector
from aiohttp.client_exceptions import ClientConnectorError

from service.sandbox.folder import parts_of
from service.sandbox.local import CHUNK_BYTES, NAME
from service.sandbox.port import Cell, OpenedSession, Sandbox, SessionFile, SessionGone, SessionLimits, Unusable
from service.sandbox.wire import STATUS, WAIT_SECONDS, Of, OfFile, Open, Refusal, RunCell, Stop

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = WAIT_SECONDS + 20.0
"""How long an answer may take: a cell that runs is answered for within WAIT_SECONDS."""

STALL_SECONDS = 60.0
"""How long a file may pause."""

MAX_ANSWER_BYTES = 64 << 20
"""The largest answer but for files: a cell with all that it may print and show."""

CONNECTIONS = 600
"""Each waiting request for a cell has a connection; there are at most 512 sessions."""

UNIX = "unix://"
TRIES = 3
"""How often in a row asking for a cell may fail by its connection."""

_REFUSALS = {status: kind for kind, status in STATUS.items()}


class RemoteSandbox(Sandbox):
    """Sessions of a `harmonium sandbox`."""

    def __init__(self, place: str, key: str = "") -> None:
        """`place` is unix:///path, or a URL of a host and a port."""
        self._place, self._key = place, key
        self._client: ClientSession | None = None
        self._stops: dict[asyncio.Task[None], str] = {}
        """The stops under way on behalf of cancelled callers, each with its session."""

    async def start(self) -> None:
        """As the port has it: the other side has proved it before it listens."""
        with suppress(SessionGone):
            await self.files("none")

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
        async with self._answer("read", msgspec.json.encode(OfFile(session, path)), stalls=True) as answer:
            if answer.status != 200:
                await self._check(answer, None)
            async for part in answer.content.iter_chunked(CHUNK_BYTES):
                yield part

    async def write(self, session: str, path: str, content: AsyncIterator[bytes]) -> SessionFile:
        parts_of(path)
        query = {"session": session, "path": path}
        async with self._answer("write", content, query, stalls=True) as answer:
            return await self._check(answer, SessionFile)

    async def remove(self, session: str, path: str) -> None:
        parts_of(path)
        await self._ask("remove", OfFile(session, path))

    async def aclose(self) -> None:
        """As the port has it: sessions stay, for others of this service, until they are idle."""
        await asyncio.gather(*self._stops, return_exceptions=True)
        if self._client:
            await self._client.close()

    async def _stop(self, session: str, call: str) -> None:
        """Stop a call on behalf of a cancelled caller: if the sandbox can't be told, the call's time ends it."""
        with suppress(Exception):
            await self.stop(session, call)

    async def _ask(self, verb: str, asked: msgspec.Struct, kind: Any = None) -> Any:
        """The answer to a verb, of this kind. Raises the port's errors."""
        async with self._answer(verb, msgspec.json.encode(asked)) as answer:
            return await self._check(answer, kind)

    @asynccontextmanager
    async def _answer(
        self,
        verb: str,
        body: bytes | AsyncIterator[bytes],
        query: dict[str, str] | None = None,
        *,
        stalls: bool = False,
    ) -> AsyncGenerator[ClientResponse]:
        """The answer to a request. Raises Unusable where there is none."""
        unix = self._place.startswith(UNIX)
        if self._client is None:
            connector = UnixConnector(self._place.removeprefix(UNIX), limit=CONNECTIONS) if unix else None
            self._client = ClientSession(
                connector=connector or TCPConnector(limit=CONNECTIONS), auto_decompress=False, trust_env=False
            )
        url = f"{'http://sandbox' if unix else self._place.rstrip('/')}/v1/{verb}"
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        bound = {"sock_read": STALL_SECONDS} if stalls else {"total": ANSWER_SECONDS}
        timeout = ClientTimeout(connect=CONNECT_SECONDS, **bound)
        try:
            async with self._client.post(
                url, data=body, params=query, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                yield answer
        except ClientConnectorError as error:
            raise Unusable(f"the sandbox at {self._place} can't be reached: {error.strerror}") from error
        except (ClientError, TimeoutError) as error:
            raise Unusable(f"the sandbox at {self._place} doesn't answer: {type(error).__name__}") from error

    async def _check(self, answer: ClientResponse, kind: Any) -> Any:
        """The object of a good answer. Raises the port's errors, Unusable where no sandbox would answer so."""
        body = bytearray()
        async for part in answer.content.iter_chunked(CHUNK_BYTES):
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                raise Unusable(f"the sandbox's answer has more than {MAX_ANSWER_BYTES:,} bytes")
        try:
            said = msgspec.json.decode(body, type=kind if answer.status < 300 else Refusal)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unusable(f"what answers at {self._place} is no sandbox") from error
        if answer.status >= 300:
            raise _REFUSALS.get(answer.status, Unusable)(said.message)
        return said
