"""ServersEngine: the engine's port over one or several servers of one kind that serve the same model.

`choosing` says where a generation goes, and `admission` when. A server that can't be reached is passed over, and asked
again until it is back; a generation that it had begun fails, for a request that kills servers must not be handed from
one to the next.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from itertools import chain
from time import monotonic
from urllib.parse import urlsplit

import msgspec

from service.engine.names import HostNames, is_name
from service.engine.port import (
    AUTO,
    HARMONY,
    MODEL_CREATED,
    Between,
    Chunk,
    EngineAway,
    EngineError,
    EngineOverloaded,
    EngineUnavailable,
    Generation,
    Load,
    ModelCard,
    Passed,
    Speech,
    Take,
    Transcript,
)
from service.engine.servers.admission import EngineAdmission, Held, Ticket
from service.engine.servers.answer import Answer, Undecided
from service.engine.servers.choosing import Choosing
from service.engine.servers.connection import BROKEN
from service.engine.servers.kind import ServerChanged, ServerKind, ServerTerms
from service.engine.servers.pool import Pool
from service.engine.servers.server import EngineServer, ServerState, ServerUnreachable
from service.logs import event
from service.ssrf import LookUp, look_up
from service.steps import BRIEFLY

logger = logging.getLogger(__name__)

TRY_ANOTHER = (ServerUnreachable, ServerChanged, EngineOverloaded)
"""Errors after which another server may do what one hasn't begun."""

MAX_CONTEXT_TOKENS = 1 << 24
"""The longest context that a request may have until a server has said its own."""

WAIT_SECONDS = 30.0
"""How long a generation waits for room in a server's cache: about as long as an answer takes that gives its room back.
Then it is refused; a background response waits in its queue again."""

TURN_TOKENS = 128
"""The most tokens that are taken in one turn of the loop: with 20 alternatives each, 2 to 5 ms."""

PROBE_SECONDS = 5.0
"""How often each server is asked for its health: a request learns of a server's death by itself."""


class Access(msgspec.Struct, frozen=True):
    """How to reach the servers: their URLs, the key, and the bounds.

    `connections` is the most generations under way at one server, `connect_seconds` how long it may take to answer a
    connection or a probe, `probe_seconds` how often it is asked how it is, `tail_seconds` how long what comes behind
    the finish may take: the count of cached tokens, and the end that frees the connection. `weights` are how much each
    server gets beside the others, where they don't get the same. `kv_tokens` is for how many tokens each has room, 0 is
    as it tells, and no bound where it doesn't; for room `waiting` generations at most wait so many seconds. URLs by
    name are looked up every `resolve_seconds`.
    """

    urls: tuple[str, ...]
    api_key: str = ""
    connections: int = 512
    connect_seconds: float = 5
    probe_seconds: float = PROBE_SECONDS
    tail_seconds: float = 1
    weights: tuple[float, ...] = ()
    kv_tokens: int = 0
    waiting: int = 512
    wait_seconds: float = WAIT_SECONDS
    resolve_seconds: float = 10

    def weight(self, url: str) -> float:
        return self.weights[self.urls.index(url)] if self.weights and url in self.urls else 1.0


class ServersEngine:
    """Servers of a kind as one engine. `model` empty and `context_tokens` 0 are the servers' own.

    They all have to serve one model: without a `model`, the first that is up decides which.
    """

    def __init__(
        self,
        kind: ServerKind,
        access: Access,
        *,
        model: str = "",
        context_tokens: int = 0,
        markup: str = AUTO,
        sees: bool = False,
        keeps: Mapping[str, bool] | None = None,
        look_up: LookUp = look_up,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`markup` is AUTO, HARMONY or a family's name: how the model writes. `sees` is whether it sees pictures though
        its servers don't say so, and `keeps` are the options by which its template keeps earlier reasoning; None is as
        the servers show. `tls` verifies the servers' certificates; None is by the authorities that the system knows.
        """
        self._kind = kind
        self._access = access
        self._wanted = model
        self._markup = markup
        self._sees = sees
        self._keeps = keeps
        self._context_tokens = context_tokens
        self._servers: list[EngineServer] = []
        self._leaving: list[EngineServer] = []
        """Servers that were taken out, and have generations under way."""
        self._tls = tls
        self._pool: Pool | None = None
        self._names = HostNames(look_up)
        self._looking: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._watchers: dict[EngineServer, asyncio.Task[None]] = {}
        self._closed = False
        self._under_way: dict[str, tuple[EngineServer, Answer]] = {}
        self._admission = EngineAdmission(access.waiting, self._open, self._give)
        self._choosing = Choosing()

    @property
    def model(self) -> ModelCard:
        """The card of the servers' model, with the smallest context of those that are up; the last known where none is.

        Raises EngineUnavailable while no server has ever been up.
        """
        known = [server.facts for server in self._up() or self._servers if server.facts]
        if not known:
            raise self._trouble()
        context = min(each.context_tokens for each in known)
        context = min(context, self._context_tokens or context)
        speech = self._spoken(known[0].speech)
        return ModelCard(
            known[0].model,
            MODEL_CREATED,
            context,
            known[0].defaults,
            speech=speech,
            constrains=all(each.constrains for each in known),
        )

    def _spoken(self, found: Speech | None) -> Speech | None:
        """How the model speaks, as its server shows and as it is said. Raises EngineUnavailable where these differ."""
        if found is not None and self._sees:
            found = msgspec.structs.replace(found, sees=True)
        if found is not None and self._keeps is not None:
            found = msgspec.structs.replace(found, keeps=tuple(self._keeps.items()))
        if self._markup == AUTO or (found is None and self._markup == HARMONY):
            return found
        if found is None or self._markup == HARMONY:
            shown = HARMONY if found is None else found.family
            raise EngineUnavailable(
                f"the configured markup is {self._markup!r}, but the server's model writes {shown!r}"
            )
        return msgspec.structs.replace(found, family=self._markup)

    async def start(self) -> None:
        """Ask every server once, and go on asking; none needs to be there yet."""
        access, self._closed = self._access, False
        keeps, seconds = self._kind.keeps_connections, access.connect_seconds
        self._pool = Pool(keeps=keeps, api_key=access.api_key, connect_seconds=seconds, tls=self._tls)
        self._servers, self._watchers = [], {}
        await self._have(self._pool, access)
        self._looking = asyncio.create_task(self._look_again(self._pool))

    async def change(self, access: Access) -> None:
        """Have the servers of `access` from now on, with the old key. New ones are asked first. Removed ones
        begin nothing more, and go once their generations have ended.
        """
        if self._pool is None or self._closed:
            raise EngineUnavailable("the engine is closed")
        await self._have(self._pool, access)

    async def _have(self, pool: Pool, access: Access | None = None) -> None:
        """Have the servers of `access`, or the current addresses of its names."""
        async with self._changing:
            access = access or self._access
            places = await self._names.places(access.urls, access.connect_seconds)
            known = {server.place: server for server in self._servers}
            made = partial(
                EngineServer, self._kind, pool=pool, wanted=self._terms, connect_seconds=access.connect_seconds
            )
            servers = [known.get(place) or made(place) for place in places]
            new = [server for server in servers if server.place not in known]
            if not self._servers:  # among them, the first that is up says which model is wanted
                self._servers = servers
            try:
                await asyncio.gather(*(server.probe() for server in new))
                await asyncio.gather(*(server.weigh() for server in new))
            except asyncio.CancelledError:
                await asyncio.gather(*(server.close() for server in new))
                raise
            gone = [server for server in known.values() if server not in servers]
            self._access, self._servers = access, servers
            for server in servers:
                server.weight = access.weight(server.place.listed)
            self._watchers |= {server: asyncio.create_task(self._watch(server)) for server in new}
            for server in gone:
                self._watchers.pop(server).cancel()
                self._leaving.append(server)
                event(logger, logging.INFO, f"{self._kind.name} server leaves", url=server.url, running=server.running)
                await self._let_go(server)
        self._admission.look()

    async def _look_again(self, pool: Pool) -> None:
        while True:
            await asyncio.sleep(self._access.resolve_seconds)
            if any(map(is_name, self._access.urls)):
                await self._have(pool)

    async def check(self) -> None:
        """Return if a server is up, as far as its last probe says. Raises EngineUnavailable.

        Where none is up all are asked once more, as one may have come back this moment.
        """
        await self._find_one_up()
        if not self._up():
            raise self._trouble()

    def servers(self) -> Mapping[str, bool]:
        return {urlsplit(server.url).netloc: server.state is ServerState.UP for server in self._servers}

    def releases(self) -> Mapping[str, str]:
        up = [(server.facts.version, server.facts.advice) for server in self._up() if server.facts]
        return {f"{self._kind.name} {version}": advice for version, advice in sorted(up) if version}

    @property
    def waiting(self) -> int:
        return self._admission.waiting

    def loads(self) -> Mapping[str, Load]:
        return {urlsplit(each.url).netloc: Load(each.tokens, self._room(each)) for each in self._servers}

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        ticket = self._ticket(generation)
        async with aclosing(self._tries(ticket)) as tries:
            async for held in tries:
                server, answer = held.server, self._kind.answer(generation)
                self._under_way[generation.id] = server, answer
                if len(self._servers) > 1:
                    self._choosing.note_warm(generation, server)
                try:
                    undecided = Undecided(answer, generation.sampling, take)
                    if await self._pour(generation, held, answer, undecided.add, between):
                        last = answer.end()
                        if last.cached_tokens is not None and held.first_seconds:
                            prompt = len(generation.prompt) or last.prompt_tokens or last.cached_tokens
                            self._choosing.note_computed(prompt - last.cached_tokens, held.first_seconds)
                        undecided.decide(last)
                    return
                except TRY_ANOTHER as error:
                    if answer.begun:
                        raise
                    ticket.fails(server, error)
                finally:
                    self._under_way.pop(generation.id, None)

    async def _pour(self, generation: Generation, held: Held, answer: Answer, take: Take, between: Between) -> bool:
        """Have a server's chunks taken, each within the read that brings it. Whether all of them came."""
        server, left, goes_on = held.server, generation.sampling.max_tokens, True
        coming: Iterator[Chunk] = iter(())
        """The chunks of the last read that are not taken yet: the first is to be completed, or taken in turns."""

        def chunks(data: bytes) -> Iterator[Chunk]:
            nonlocal left
            for chunk in answer.feed(data):
                if (left := left - len(chunk.tokens)) < 0:
                    raise EngineError(f"the {self._kind.name} server sent too many tokens")
                held.note(len(chunk.tokens))
                yield chunk

        def feed(data: bytes) -> bool:
            nonlocal coming, goes_on
            coming = chunks(data)
            for chunk in coming:
                if answer.lost or len(chunk.tokens) > TURN_TOKENS:
                    coming = chain((chunk,), coming)
                    return False
                goes_on = take(chunk)
            return goes_on and not answer.finished

        async with server.stream(generation) as events:
            while not answer.finished and not await events.pour(feed):
                for chunk in coming:
                    whole = await server.complete(chunk, answer) if answer.lost else chunk
                    for part in whole.cut(TURN_TOKENS):
                        if not goes_on and not (goes_on := await between()):
                            return False
                        goes_on = take(part)
                        await asyncio.sleep(BRIEFLY)
                if not goes_on and not (goes_on := await between()):
                    return False
            with suppress(BROKEN, EngineError):  # no more is said of the answer, however the stream ends
                async with asyncio.timeout(self._access.tail_seconds):
                    while not answer.over and not await events.pour(feed):
                        pass
        return True

    async def _tries(self, ticket: Ticket) -> AsyncGenerator[Held, None]:
        """Places to try one after the other. Raises EngineError once there is none: the last one's, if it failed."""
        for _ in range(len(self._servers) + 1):  # once more than there are, as one that has changed is asked again
            held = await self._place(ticket)
            if held is None:
                break
            try:
                yield held
            finally:
                held.release()
                await self._let_go(held.server)
        trouble = ticket.trouble or self._trouble()
        if isinstance(trouble, EngineOverloaded):
            trouble.seconds = self._admission.seconds(ticket.need)
        raise trouble

    async def render(self, transcript: Transcript, model: str) -> list[int]:
        await self._find_one_up()
        trouble: EngineUnavailable | None = None
        for server in sorted(self._up(model), key=lambda server: server.running):
            try:
                return await server.render(transcript)
            except EngineUnavailable as error:
                trouble = error
        raise trouble or self._trouble()

    async def finish(self, id: str) -> bool:
        found = self._under_way.get(id)
        if found is None:
            return False
        server, answer = found
        answer.ending = True
        return await server.abort(id)

    async def close(self) -> None:
        self._closed = True
        self._admission.look()
        watchers = [*self._watchers.values(), *([self._looking] if self._looking else [])]
        for watcher in watchers:
            watcher.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        await self._names.close()
        for server in (*self._servers, *self._leaving):
            await server.close()
        if self._pool is not None:
            await self._pool.close()

    async def _place(self, ticket: Ticket) -> Held | None:
        """A place at a server; None where there will be none. Raises EngineOverloaded where too many wait."""
        while True:
            await self._find_one_up()
            ticket.home = self._choosing.home(ticket.asked, ticket.need.prompt, self._up_for(ticket))
            held = self._admission.now(ticket)
            if held is not None or not any(map(ticket.may_have, self._open())):
                return held
            ticket.wait_for_home(*self._choosing.patience(ticket.home, self._access.wait_seconds))
            if ticket.deadline is None and any(self._room(server) for server in self._up()):
                ticket.deadline = asyncio.get_running_loop().time() + self._access.wait_seconds
            try:
                held = await self._admission.wait(ticket)
            except TimeoutError:
                seconds = self._admission.seconds(ticket.need)
                raise EngineOverloaded(f"no {self._kind.name} server has room for the prompt", seconds) from None
            if held is not None:
                return held

    def _open(self) -> list[EngineServer]:
        return [server for server in self._up() if server.full or server.running < self._access.connections]

    def _give(self, ticket: Ticket, servers: Sequence[EngineServer], home: EngineServer | None) -> Held | None:
        free = [server for server in servers if self._has_place(server, ticket)]
        if not free or (home is not None and home not in free):
            return None
        asked = ticket.asked
        server = self._choosing.choose(asked, free, self._up_for(ticket))
        return Held(server, ticket.need, asked.answers if isinstance(asked, Passed) else 1, self._admission)

    def _up_for(self, ticket: Ticket) -> list[EngineServer]:
        return [server for server in self._up() if ticket.may_have(server)]

    def _has_place(self, server: EngineServer, ticket: Ticket) -> bool:
        """Whether a generation may begin there now. Where nothing of ours is under way there is room for its tokens,
        and for what goes on here, too: else some would never be served, or half of them.
        """
        if server.full or server.running >= self._access.connections:
            return False
        room = self._room(server)
        taken = server.tokens + server.others_tokens
        return not room or not server.running or ticket.begun or taken + ticket.need.tokens <= room

    def _room(self, server: EngineServer) -> int:
        return self._access.kv_tokens or server.room

    def _ticket(self, asked: Generation | Passed) -> Ticket:
        known = (server.facts.context_tokens for server in self._up() if server.facts)
        return self._admission.ticket(asked, min(known, default=MAX_CONTEXT_TOKENS))

    async def _let_go(self, server: EngineServer) -> None:
        if server in self._leaving and not server.running:
            self._leaving.remove(server)
            await server.close()
            event(logger, logging.INFO, f"{self._kind.name} server has left", url=server.url)

    def _up(self, model: str = "") -> list[EngineServer]:
        if self._closed:
            return []
        up = [server for server in self._servers if server.state is ServerState.UP]
        return [server for server in up if model in ("", server.facts and server.facts.model)]

    def _terms(self) -> ServerTerms:
        """The terms on which a server is let in: our model, or that of the servers that are up; empty is any."""
        model = self._wanted or next((server.facts.model for server in self._up() if server.facts), "")
        return ServerTerms(model, self._context_tokens)

    def _trouble(self) -> EngineUnavailable:
        if self._closed or self._pool is None:
            return EngineUnavailable("the engine is closed")
        if not self._servers:
            return EngineUnavailable(f"the name of the {self._kind.name} servers has no address")
        if self._up():
            return EngineOverloaded(
                f"all {self._access.connections} generations of each {self._kind.name} server are under way"
            )
        away = [(server.away_since, server.trouble) for server in self._servers if server.away_since is not None]
        if not away:
            return EngineUnavailable(self._servers[0].trouble)
        since, trouble = max(away)  # the last one that answered
        return EngineAway(trouble, monotonic() - since)

    async def _find_one_up(self) -> None:
        """Where none is up, ask all of them, and wait until one is or all have answered."""
        if self._up() or self._closed:
            return
        asked = {asyncio.ensure_future(server.probe()) for server in self._servers}
        while asked and not self._up():
            _, asked = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        for waiting in asked:  # the probes themselves go on
            waiting.cancel()

    async def _watch(self, server: EngineServer) -> None:
        while True:
            await asyncio.sleep(self._access.probe_seconds)
            await server.probe()
            await server.weigh()
            self._admission.look()
