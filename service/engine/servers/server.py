"""One server: its health, its facts, and streams of its events.

    unknown ─▶ up ⇄ down     any ─▶ closed

A probe moves it to up, once the server is healthy and says what it serves, and to down; a request that can't reach it
moves it to down. Its facts are asked for again whenever it comes up, as another server may be there by then. Closing it
is for good.
Hanging up is how a generation is aborted, so a stream that isn't read to its end closes its connection. A server that
points elsewhere is not followed: prompts and the key are for it alone.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from functools import partial
from hashlib import blake2b
from time import monotonic
from typing import TypeVar

import msgspec

from service.engine.names import ServerAddress
from service.engine.port import (
    LEAST_LOGPROB,
    Chunk,
    EngineBroke,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Generation,
    Passed,
    TokenLogprobs,
    Transcript,
)
from service.engine.servers.answer import Answer
from service.engine.servers.connection import BROKEN, ServerConnection, target_of
from service.engine.servers.kind import (
    RefusedAlone,
    Request,
    ServerChanged,
    ServerFacts,
    ServerKind,
    ServerLoad,
    Wanted,
)
from service.engine.servers.pool import Pool, Unconnected, read_bounded
from service.logs import event

logger = logging.getLogger(__name__)

T = TypeVar("T")

HEAD_SECONDS = 30
"""How long a server may take to accept a generation or to say why not; its tokens may take longer."""

RENDER_SECONDS = 30

MAX_RENDERED_BYTES = 64 << 20
"""The largest prompt that a server may make: its text, or its ids with their texts."""

MAX_ANSWER_BYTES = 1 << 20
"""The largest answer to a probe, and the most that is read of an error."""

SESSION = "x-session-id"
"""The header by which routers send a conversation's generations to one server."""

MAX_KEY_BYTES = 64


class ServerUnreachable(EngineUnavailable):
    """The server isn't there, so it hasn't begun anything."""


class ServerState(Enum):
    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    CLOSED = "closed"


class EngineServer:
    """A server of a kind at an address, or a router before some. `wanted` are the terms that it has to meet."""

    def __init__(
        self, kind: ServerKind, place: ServerAddress, pool: Pool, *, wanted: Wanted, connect_seconds: float
    ) -> None:
        self.kind, self.place, self.url = kind, place, place.url
        self.weight = 1.0
        self.running = 0
        """How many generations of this process are under way there, those included that are just beginning."""
        self.tokens = 0
        self.others_running = self.others_tokens = 0
        """The load of other clients at its last report: their generations that ran or waited there, and tokens."""
        self.room = 0
        """The tokens for which it has room, as reported in this life; 0 is unknown."""
        self.lives = 0
        """How often it came up: each time with a cache of unknown content."""
        self.state = ServerState.UNKNOWN
        self.facts: ServerFacts | None = None
        self.trouble = f"the {kind.name} server was not asked yet"
        """Why it is not up. Clients may see it: it names no host."""
        self.away_since: float | None = None
        """When it was first found away or not ready, by the monotonic clock; None where nothing or else is wrong."""
        self._wanted = wanted
        self.pool = pool
        self._target = target_of(place)
        self._ask = partial(self._ask_within, connect_seconds, MAX_ANSWER_BYTES)
        self._ask_at_length = partial(self._ask_within, RENDER_SECONDS, MAX_RENDERED_BYTES)
        self._probing: asyncio.Task[None] | None = None
        self._streams: set[ServerConnection] = set()
        self._ends: dict[str, Request] = {}
        """The request that ends each generation under way, by the generation's id."""
        self._unending = 0
        """The life in which it last refused to end a generation."""

    @property
    def full(self) -> bool:
        return self.facts is not None and 0 < self.facts.places <= self.running

    async def weigh(self) -> None:
        """Asks for its load. Where it reports none, or nonsense, it counts as if it were ours alone."""
        if self.state is not ServerState.UP:
            return
        life, running, tokens = self.lives, self.running, self.tokens
        try:
            load = await self.kind.load(self._ask)
        except (EngineError, BROKEN):
            load = ServerLoad()
        if life == self.lives:
            self.room = load.room or self.room
            # generations of ours that ended or began during the report are no one else's
            self.others_running = max(0, load.running + load.waiting - max(running, self.running))
            self.others_tokens = max(0, int(load.used * self.room) - max(tokens, self.tokens))

    async def probe(self) -> None:
        """Probes it. Concurrent callers share one probe; never raises."""
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe())
            self._probing.add_done_callback(lambda _: setattr(self, "_probing", None))
        await asyncio.wait([self._probing])

    async def close(self) -> None:
        self.state, self.trouble = ServerState.CLOSED, "the engine is closed"
        for connection in self._streams:
            connection.abort()
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])

    @asynccontextmanager
    async def stream(self, generation: Generation) -> AsyncGenerator[ServerConnection, None]:
        """The bytes of a generation's events. Leaving early aborts the generation.

        Raises EngineError: Unreachable, ServerChanged and EngineOverloaded mean that the server didn't begin.
        """
        facts = self.fetch_facts()
        disarming = self.kind.disarm(self._ask_at_length, facts, generation)
        generation = await self._outcome_of(disarming, ServerUnreachable(f"the {self.kind.name} server did not answer"))
        request = self.kind.request(facts, generation)
        if request.end is not None:
            self._ends[generation.id] = request.end
        try:
            async with self.posting(request, headers_of(generation), self.kind.refusal, HEAD_SECONDS) as connection:
                try:
                    yield connection
                except BROKEN as error:
                    raise self.broke() from error
        finally:
            self._ends.pop(generation.id, None)

    @asynccontextmanager
    async def posting(
        self,
        request: Request,
        headers: Mapping[str, str],
        refused: Callable[[int, bytes], EngineError],
        seconds: float | None,
    ) -> AsyncGenerator[ServerConnection, None]:
        """The connection with the answer, its body unread; its head may take `seconds`. Raises as `stream` does."""
        try:
            connection = await self._post(request, headers, refused, seconds)
            self._streams.add(connection)
            try:
                if self.state is ServerState.CLOSED:  # too late for `close` to end it
                    raise ServerUnreachable(self.trouble)
                yield connection
            finally:
                self._streams.discard(connection)
                connection.leave()
        except ServerChanged as error:
            self.down(error)
            raise

    def fetch_facts(self) -> ServerFacts:
        if self.facts is None or self.state is not ServerState.UP:
            raise ServerUnreachable(self.trouble)
        return self.facts

    def broke(self) -> EngineUnavailable:
        return self.down(EngineBroke(f"the connection to the {self.kind.name} server broke"))

    async def _outcome_of(self, asking: Awaitable[T], trouble: EngineUnavailable) -> T:
        try:
            return await asking
        except BROKEN as error:
            raise self.down(trouble, error) from error

    async def render(self, transcript: Transcript) -> list[int]:
        rendering = self.kind.render(self._ask_at_length, self.fetch_facts(), transcript)
        return await self._outcome_of(rendering, EngineUnavailable(f"the {self.kind.name} server did not answer"))

    async def complete(self, chunk: Chunk, answer: Answer) -> Chunk:
        """The chunk with the ids that the server left out: the ids into which it cuts their text. They give the same
        text, though perhaps not by the sampled ids. Raises EngineError.
        """
        lost, answer.lost = answer.lost, []
        ids, logprobs = list(chunk.tokens), None if chunk.logprobs is None else list(chunk.logprobs)
        for place, text in reversed(lost):
            trouble = EngineBroke(f"the connection to the {self.kind.name} server broke")
            found = await self._outcome_of(self.kind.cut(self._ask, text), trouble)
            ids[place : place + 1] = found
            if logprobs is not None:
                logprobs[place:place] = [TokenLogprobs(LEAST_LOGPROB)] * (len(found) - 1)
        return msgspec.structs.replace(chunk, tokens=ids, logprobs=logprobs)

    async def abort(self, id: str) -> bool:
        """Has it end a generation, whose stream then says so; False where that is not possible. The log has a refusal
        once in each of its lives.
        """
        request = self._ends.get(id)
        if request is None:
            return False
        try:
            status, _ = await self._ask("POST", request.path, request.body)
        except BROKEN:  # a server that is gone has ended it, too, and its stream fails with the reason
            return False
        if status != 200 and self._unending != self.lives:
            self._unending = self.lives
            words = f"{self.kind.name} server refuses to end a generation"
            event(logger, logging.WARNING, words, url=self.url, path=request.path, status=status)
        return status == 200

    def down(self, trouble: EngineUnavailable, cause: Exception | None = None) -> EngineUnavailable:
        """Notes and returns the reason why it can't serve now. `cause` is for the log."""
        if self.state is ServerState.CLOSED:
            return trouble
        if self.state is not ServerState.DOWN or str(trouble) != self.trouble:
            reason = f"{trouble} ({type(cause.__cause__ or cause).__name__})" if cause else str(trouble)
            event(logger, logging.WARNING, f"{self.kind.name} server is down", url=self.url, reason=reason)
        self.state, self.trouble = ServerState.DOWN, str(trouble)
        if not isinstance(trouble, ServerUnreachable):
            self.away_since = None
        elif self.away_since is None:
            self.away_since = monotonic()
        return trouble

    def _unreachable(self) -> ServerUnreachable:
        return ServerUnreachable(f"the {self.kind.name} server can't be reached{self.kind.loading}")

    async def _post(
        self,
        request: Request,
        headers: Mapping[str, str],
        refused: Callable[[int, bytes], EngineError],
        seconds: float | None,
    ) -> ServerConnection:
        """The connection with the answer, its body unread. Raises ServerUnreachable, and the error of a refusal."""
        name = self.kind.name
        try:
            async with asyncio.timeout(seconds):
                connection = await self.pool.send("POST", self._target, request.path, headers, request.body)
                status = connection.answer.status
                if status == 200:
                    return connection
                try:
                    said = await read_bounded(connection.read, MAX_ANSWER_BYTES)
                finally:
                    connection.leave()
        except Unconnected as error:
            raise self.down(self._unreachable(), error) from error
        except BROKEN as error:  # it may have begun
            raise self.down(EngineUnavailable(f"the {name} server did not answer"), error) from error
        failure = refused(status, said)
        failed = status >= 500 and not isinstance(failure, EngineOverloaded | EngineRefused)
        if failed or isinstance(failure, RefusedAlone):
            await self.probe()  # is it this request, or the server?
            self.fetch_facts()
        raise failure

    async def _probe(self) -> None:
        name = self.kind.name
        try:
            status, _ = await self._ask("GET", self.kind.health, None)
            if status == 503:
                raise ServerUnreachable(f"the {name} server is not healthy (status 503){self.kind.loading}")
            if status != 200:
                raise EngineUnavailable(f"the {name} server is not healthy (status {status})")
            if self.state is ServerState.UP and not await self.kind.serves(self._ask, self.fetch_facts(), self._wanted):
                self.down(EngineUnavailable(f"the {name} server serves something else now"))
            if self.state is not ServerState.UP:
                self.facts = await self.kind.facts(self._ask, self._wanted)
                self.state = ServerState.UP
                self.lives += 1
                self.room = self.others_running = self.others_tokens = 0
                self.away_since = None
                facts, url = self.facts, self.url
                told = {"model": facts.model, "context_tokens": facts.context_tokens, "path": str(facts.endpoint)}
                event(logger, logging.INFO, f"{name} server is up", url=url, **told, version=facts.version or None)
                if facts.advice:
                    event(logger, logging.WARNING, f"{name} server lacks something", url=url, advice=facts.advice)
        except EngineError as error:
            self.down(error if isinstance(error, EngineUnavailable) else EngineUnavailable(str(error)))
        except BROKEN as error:
            self.down(self._unreachable(), error)

    async def _ask_within(
        self, seconds: float, most: int, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        return await self.pool.ask(self._target, method, path, body, seconds=seconds, most=most)


def headers_of(asked: Generation | Passed) -> dict[str, str]:
    """The headers of a request. One tells a router which generations belong together, but of no two tenants."""
    key = (asked.cache_salt or "").encode()[:MAX_KEY_BYTES]
    session = blake2b(asked.affinity.encode(), key=key, digest_size=16).hexdigest()
    return {"x-request-id": asked.id, **({SESSION: session} if asked.affinity else {}), **dict(asked.trace)}
