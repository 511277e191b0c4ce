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
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from service.engine.names import ServerAddress
from service.engine.pass_through import Passed, PassedReply
from service.engine.port import (
    LEAST_LOGPROB,
    Chunk,
    EngineBroke,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Generation,
    TokenLogprobs,
)
from service.engine.servers.answer import Answer
from service.engine.servers.connection import Connection, target_of
from service.engine.servers.kind import (
    Facts,
    Kind,
    RefusedAlone,
    Request,
    ServerChanged,
    ServerLoad,
    Wanted,
)
from service.engine.servers.passing import (
    ACCEPTED,
    BROKEN,
    GENERATED,
    STREAMED,
    ServerReply,
    passed_refusal,
)
from service.engine.servers.pool import Contact, Unconnected, bounded
from service.logs import event
from service.markup.speech import Transcript

logger = logging.getLogger(__name__)

HEAD_SECONDS = 30
"""How long a server may take to accept a generation or to say why not; its tokens may take longer."""

RENDER_SECONDS = 30
"""For how long a server may make a prompt."""

MAX_RENDERED_BYTES = 64 << 20
"""The largest prompt that a server may make: its text, or its ids with their texts."""

MAX_ANSWER_BYTES = 1 << 20
"""The largest answer to a probe, and the most that is read of an error."""

SESSION = "x-session-id"
"""The header by which routers send a conversation's generations to one server."""

MAX_KEY_BYTES = 64
"""How long a key of the digest in it may be."""


class Unreachable(EngineUnavailable):
    """The server isn't there, so it hasn't begun anything."""


NOT_BEGUN = (Unreachable, EngineRefused, EngineOverloaded, ServerChanged)
"""Errors behind which a server has nothing under way."""


class State(Enum):
    """How a server is doing."""

    UNKNOWN = "unknown"
    UP = "up"
    DOWN = "down"
    CLOSED = "closed"


class _Heard(NamedTuple):
    """The load of other clients when the server last reported: generations, and tokens."""

    running: int
    tokens: int


class Server:
    """A server of a kind at an address, or a router before some. `wanted` are the terms that it has to meet."""

    def __init__(
        self,
        kind: Kind,
        place: ServerAddress,
        contact: Contact,
        *,
        wanted: Wanted,
        connect_seconds: float,
    ) -> None:
        self.kind = kind
        self.place = place
        self.url = place.url
        self.running = 0
        """How many generations of this process are under way there, those included that are just beginning."""
        self.tokens = 0
        """How many tokens they take."""
        self.room = 0
        """The tokens for which it has room, as reported in this life; 0 is unknown."""
        self.lives = 0
        """How often it came up: each time with a cache of unknown content."""
        self.state = State.UNKNOWN
        self.facts: Facts | None = None
        """The facts when it was last up."""
        self.trouble = f"the {kind.name} server was not asked yet"
        """Why it is not up. Clients may see it: it names no host."""
        self._wanted = wanted
        self._contact = contact
        self._target = target_of(place)
        self._probe_seconds = connect_seconds
        self._probing: asyncio.Task[None] | None = None
        self._told: _Heard | None = None
        self._streams: set[Connection] = set()
        self._ends: dict[str, Request] = {}
        """The request that ends each generation under way, by the generation's id."""
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def _closed(self) -> bool:
        return self.state is State.CLOSED

    @property
    def full(self) -> bool:
        """Whether it has no place for another generation."""
        return self.facts is not None and 0 < self.facts.places <= self.running

    @property
    def others_running(self) -> int:
        """How many generations of others ran or waited there at its last report."""
        return 0 if self._told is None else self._told.running

    @property
    def others_tokens(self) -> int:
        """How many tokens of others it had then."""
        return 0 if self._told is None else self._told.tokens

    async def weigh(self) -> None:
        """Asks for its load. Where it reports none, or nonsense, it counts as if it were ours alone."""
        if self.state is not State.UP:
            return
        life, running, tokens = self.lives, self.running, self.tokens
        try:
            told = await self.kind.load(self._ask)
        except (EngineError, BROKEN):
            told = ServerLoad()
        if life == self.lives:
            self.room = told.room or self.room
            # generations of ours that ended or began during the report are no one else's
            others = told.running + told.waiting - max(running, self.running)
            others_tokens = int(told.used * self.room) - max(tokens, self.tokens)
            self._told = _Heard(max(0, others), max(0, others_tokens))

    async def probe(self) -> None:
        """Probes it. Concurrent callers share one probe; never raises."""
        if self._probing is None:
            self._probing = asyncio.create_task(self._probe())
            self._probing.add_done_callback(lambda _: setattr(self, "_probing", None))
        await asyncio.wait([self._probing])

    async def leave(self) -> None:
        """Closes it, once nothing runs there but requests that end aborted generations."""
        if self._ending:
            await asyncio.wait(self._ending)
        await self.close()

    async def close(self) -> None:
        """Ends the streams, and all else under way."""
        self.state, self.trouble = State.CLOSED, "the engine is closed"
        for task in self._ending:
            task.cancel()
        for connection in self._streams:
            connection.abort()
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])

    @asynccontextmanager
    async def stream(self, generation: Generation) -> AsyncGenerator[Connection, None]:
        """The bytes of a generation's events. Leaving early aborts the generation.

        Raises EngineError: Unreachable, ServerChanged and EngineOverloaded mean that the server didn't begin.
        """
        facts = self._served()
        try:
            generation = await self.kind.disarmed(self._ask_at_length, facts, generation)
        except BROKEN as error:
            raise self.down(Unreachable(f"the {self.kind.name} server did not answer"), error) from error
        request = self.kind.request(facts, generation)
        if request.end is not None:
            self._ends[generation.id] = request.end
        try:
            async with self._posted(
                request, _headers(generation), self.kind.refused, seconds=HEAD_SECONDS
            ) as connection:
                try:
                    yield connection
                except BROKEN as error:
                    raise self._broke() from error
        finally:
            self._ends.pop(generation.id, None)

    @asynccontextmanager
    async def pass_on(self, passed: Passed) -> AsyncGenerator[PassedReply, None]:
        """The server's reply to a request that is passed on. Leaving early hangs up. Raises as `stream` does."""
        facts = self._served()
        folded = self.kind.streams_alone and not passed.stream and passed.path in GENERATED
        own = {"model": facts.model, **self.kind.passed(passed), **(STREAMED if folded else {})}
        body = msgspec.json.encode({**passed.members, **own})
        headers = {**_headers(passed), "accept": ACCEPTED}

        def refused(status: int, said: bytes) -> EngineError:
            return passed_refusal(self.kind.name, status, said, self._hidden)

        request = Request(passed.path, body)
        async with self._posted(request, headers, refused, seconds=None) as connection:
            yield ServerReply(self.kind.name, connection, self._hidden, self._broke, folded=folded)

    @asynccontextmanager
    async def _posted(
        self,
        request: Request,
        headers: Mapping[str, str],
        refused: Callable[[int, bytes], EngineError],
        *,
        seconds: float | None,
    ) -> AsyncGenerator[Connection, None]:
        """The connection with the answer, its body unread; its head may take `seconds`. Raises as `stream` does."""
        over = False
        try:
            try:
                connection = await self._post(request, headers, refused, seconds)
            except NOT_BEGUN:
                over = True
                raise
            self._streams.add(connection)
            try:
                if self._closed:  # too late for `close` to end it
                    raise Unreachable(self.trouble)
                yield connection
            finally:
                over = connection.at_eof
                self._streams.discard(connection)
                connection.leave()
        except ServerChanged as error:
            self.down(error)
            raise
        finally:
            if not over:
                self._left(request)

    def _left(self, request: Request) -> None:
        """Ends a generation that was hung up on, where the server doesn't notice that soon."""
        if request.end is None or self.kind.notices_hang_ups or self._closed:
            return
        task = asyncio.create_task(self._say(request.end))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _say(self, request: Request) -> None:
        with suppress(BROKEN):  # a server that is gone has ended it, too
            await self._ask("POST", request.path, request.body)

    def _served(self) -> Facts:
        """The server's facts. Raises Unreachable."""
        if self.facts is None or self.state is not State.UP:
            raise Unreachable(self.trouble)
        return self.facts

    def _broke(self) -> EngineUnavailable:
        """Note that a connection broke."""
        return self.down(EngineBroke(f"the connection to the {self.kind.name} server broke"))

    @property
    def _hidden(self) -> list[str]:
        """The secrets that no client may see: its address, and the key for it."""
        return [each for each in (self._contact.api_key, urlsplit(self.url).netloc, self.place.host) if each]

    async def render(self, transcript: Transcript) -> list[int]:
        """The ids of a prompt. Raises EngineError."""
        facts = self._served()
        try:
            return await self.kind.render(self._ask_at_length, facts, transcript)
        except BROKEN as error:
            raise self.down(EngineUnavailable(f"the {self.kind.name} server did not answer"), error) from error

    async def completed(self, chunk: Chunk, answer: Answer) -> Chunk:
        """The chunk with the ids that the server left out: the ids into which it cuts their text. They give the same
        text, though perhaps not by the sampled ids. Raises EngineError.
        """
        lost, answer.lost = answer.lost, []
        ids, logprobs = list(chunk.tokens), None if chunk.logprobs is None else list(chunk.logprobs)
        try:
            for place, text in reversed(lost):
                found = await self.kind.cut(self._ask, text)
                ids[place : place + 1] = found
                if logprobs is not None:
                    logprobs[place:place] = [TokenLogprobs(LEAST_LOGPROB)] * (len(found) - 1)
        except BROKEN as error:
            raise self.down(EngineBroke(f"the connection to the {self.kind.name} server broke"), error) from error
        return msgspec.structs.replace(chunk, tokens=ids, logprobs=logprobs)

    async def abort(self, id: str) -> bool:
        """Has it end a generation, whose stream then says so; False where that is not possible."""
        request = self._ends.get(id)
        if request is None:
            return False
        try:
            status, _ = await self._ask("POST", request.path, request.body)
        except BROKEN:  # its stream will fail with the reason
            return False
        return status == 200

    def down(self, trouble: EngineUnavailable, cause: Exception | None = None) -> EngineUnavailable:
        """Notes and returns the reason why it can't serve now. `cause` is for the log."""
        if self._closed:
            return trouble
        if self.state is not State.DOWN or str(trouble) != self.trouble:
            reason = f"{trouble} ({type(cause.__cause__ or cause).__name__})" if cause else str(trouble)
            event(logger, logging.WARNING, f"{self.kind.name} server is down", url=self.url, reason=reason)
        self.state, self.trouble = State.DOWN, str(trouble)
        return trouble

    async def _post(
        self,
        request: Request,
        headers: Mapping[str, str],
        refused: Callable[[int, bytes], EngineError],
        seconds: float | None,
    ) -> Connection:
        """The connection with the answer to a request, its body unread. Raises Unreachable, and what the server refuses
        it with.
        """
        name = self.kind.name
        try:
            async with asyncio.timeout(seconds):
                told = {**self._contact.headers, **headers}
                connection = await self._contact.pool.send("POST", self._target, request.path, told, request.body)
                status = connection.answer.status
                if status == 200:
                    return connection
                try:
                    said = await bounded(connection.read, MAX_ANSWER_BYTES)
                finally:
                    connection.leave()
        except Unconnected as error:
            raise self.down(Unreachable(f"the {name} server can't be reached"), error) from error
        except BROKEN as error:  # it may have begun
            raise self.down(EngineUnavailable(f"the {name} server did not answer"), error) from error
        failure = refused(status, said)
        failed = status >= 500 and not isinstance(failure, EngineOverloaded | EngineRefused)
        if failed or isinstance(failure, RefusedAlone):
            await self.probe()  # is it this request, or the server?
            if self.state is not State.UP:
                raise Unreachable(self.trouble)
        raise failure

    async def _probe(self) -> None:
        name = self.kind.name
        try:
            status, _ = await self._ask("GET", self.kind.health, None)
            if status != 200:
                raise EngineUnavailable(f"the {name} server is not healthy (status {status})")
            facts = self.facts if self.state is State.UP else None
            if facts and not await self.kind.serves(self._ask, facts, self._wanted):
                self.down(EngineUnavailable(f"the {name} server serves something else now"))
            if self.state is not State.UP:
                self.facts = await self.kind.facts(self._ask, self._wanted)
                self.state = State.UP
                self.lives += 1
                self.room, self._told = 0, None
                event(
                    logger,
                    logging.INFO,
                    f"{name} server is up",
                    url=self.url,
                    model=self.facts.model,
                    context_tokens=self.facts.context_tokens,
                    endpoint=str(self.facts.endpoint),
                )
        except EngineUnavailable as error:
            self.down(error)
        except EngineError as error:
            self.down(EngineUnavailable(str(error)))
        except BROKEN as error:
            self.down(Unreachable(f"the {name} server can't be reached"), error)

    async def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """The status and the body of a small request."""
        return await self._contact.ask(
            self._target, method, path, body, seconds=self._probe_seconds, most=MAX_ANSWER_BYTES
        )

    async def _ask_at_length(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """The same for a request about a whole conversation."""
        return await self._contact.ask(
            self._target, method, path, body, seconds=RENDER_SECONDS, most=MAX_RENDERED_BYTES
        )


def _headers(asked: Generation | Passed) -> dict[str, str]:
    """The headers of a request."""
    return {"x-request-id": asked.id, **_session(asked.affinity, asked.cache_salt or ""), **dict(asked.trace)}


def _session(affinity: str, salt: str) -> dict[str, str]:
    """A header that tells a router which generations belong together, but not whose: two tenants never share one."""
    key = salt.encode()[:MAX_KEY_BYTES]
    return {SESSION: blake2b(affinity.encode(), key=key, digest_size=16).hexdigest()} if affinity else {}
