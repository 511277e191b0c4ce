"""Engines: several engines as one, each with a model of its own, of which a request's `model` chooses.

They may change while they serve. One that is taken out begins nothing for new requests; what was prepared for it runs
there to its end, the further generations of a response included, and then it is closed.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from time import monotonic

import msgspec

from service.engine.port import (
    Between,
    Engine,
    EngineError,
    EngineRefused,
    EngineUnavailable,
    Generation,
    Load,
    Loaded,
    ModelCard,
    NotServed,
    Passed,
    PassedReply,
    PassesOn,
    Released,
    Renderer,
    Take,
    Transcript,
)

SALTS_CACHED = 1024
"""How many salts are kept, so that none is computed for each request."""

DRAIN_SECONDS = 600.0
"""For how long an engine that was taken out must have no work before it is closed: a response that has begun there
may call tools for as long between two generations."""

MAX_ENGINES = 64
FAMILY = "gpt-oss"
OWNER = "openai/"
"""The models that are known at Hugging Face by their owner's name, too, and that name."""


class Member(msgspec.Struct, frozen=True):
    """An engine and its model's names for clients: `name`, where empty is the engine's own, and `aliases`.
    `model` is the engine's own name of it, where it has one. `key` identifies an engine that is kept when the list
    is read again. The most that a response may have is `max_output_tokens`, 0 is no limit.
    """

    engine: Engine
    name: str = ""
    model: str = ""
    aliases: tuple[str, ...] = ()
    max_output_tokens: int = 0
    key: Hashable = None

    @property
    def card(self) -> ModelCard:
        """Its model, by its name here. Raises EngineUnavailable as long as the engine doesn't know it."""
        card = self.engine.model
        most = [each for each in (self.max_output_tokens, card.max_output_tokens) if each]
        return msgspec.structs.replace(card, id=self.name or card.id, max_output_tokens=min(most, default=0))

    def known_as(self, name: str) -> str:
        """The engine's own name of the model that goes by this name here."""
        return self.model if self.name else name


class ModelOffer(msgspec.Struct, frozen=True):
    """A model by its names, the first of which is its id; its card, where that is known by now."""

    names: tuple[str, ...]
    card: ModelCard | None


May = Callable[[Sequence[str]], bool]
"""Whether a tenant may use the model of these names. A model that it may not use doesn't exist for it."""


def anybody(names: Sequence[str]) -> bool:
    return True


class Engines:
    """Engines as one; the first is that of requests that name no model."""

    def __init__(self, members: Sequence[Member], *, drain_seconds: float = DRAIN_SECONDS) -> None:
        """`members` have names without clashes, unless there is only one."""
        self._take(members)
        self._drain_seconds = drain_seconds
        self._running = Counter[Engine]()
        self._ended: dict[Engine, float] = {}
        """When something ended there last."""
        self._leaving: dict[Member, asyncio.Task[None]] = {}
        self._under_way: dict[str, Engine] = {}
        self._changing = asyncio.Lock()

    @property
    def model(self) -> ModelCard:
        return self.members[0].card

    def offers(self, may: May = anybody) -> list[ModelOffer]:
        """The models of now, the first first. One has no names as long as only its engine could say them."""
        found = [_offer(member, self._named) for member in self.members]
        return [offer for offer in found if not offer.names or may(offer.names)]

    async def find(self, name: str, may: May = anybody) -> ModelCard | None:
        """The model of this name, or the first one for no name; None where there is none of it. An engine that doesn't
        know yet what it serves is asked again. Raises EngineUnavailable.
        """
        for member in self._candidates(name):
            offer = _offer(member, self._named)
            if offer.names and not may(offer.names):
                continue
            if offer.card is None:
                with _of_model(member):
                    await member.engine.check()
                offer = ModelOffer(_offer(member, self._named).names, member.card)
            if (not name or name in offer.names) and may(offer.names):
                return offer.card
        return None

    def _candidates(self, name: str) -> Sequence[Member]:
        """The members whose model may have this name; for none, all in their order."""
        if not name or not self.members[0].name:
            return self.members
        member = self._named.get(name)
        return () if member is None else (member,)

    def servers(self) -> Mapping[str, bool]:
        """All that sample; a server that several engines have is up if it is for all of them."""
        found: dict[str, bool] = {}
        for member in self.members:
            for server, up in member.engine.servers().items():
                found[server] = up and found.get(server, True)
        return found

    def loads(self) -> Mapping[str, Load]:
        """The load of each server that reports one; the sum, for a server that several engines share."""
        found: dict[str, Load] = {}
        for engine in self._load_all():
            for server, load in engine.loads().items():
                before = found.get(server, Load(0, load.room))
                found[server] = Load(before.tokens + load.tokens, load.room)
        return found

    @property
    def waiting(self) -> int:
        return sum(engine.waiting for engine in self._load_all())

    def releases(self) -> Mapping[str, str]:
        told = [member.engine.releases() for member in self.members if isinstance(member.engine, Released)]
        return {release: advice for each in told for release, advice in each.items()}

    def _load_all(self) -> list[Loaded]:
        return [member.engine for member in self.members if isinstance(member.engine, Loaded)]

    async def start(self) -> None:
        await _start(member.engine for member in self.members)

    async def check(self) -> None:
        """Return if one of them can serve now. Raises EngineUnavailable with the reason of the first."""
        checks = [asyncio.ensure_future(member.engine.check()) for member in self.members]
        try:
            for check in asyncio.as_completed(checks):
                with suppress(EngineUnavailable):
                    await check
                    return
            await checks[0]
        finally:
            for check in checks:
                check.cancel()
            await asyncio.gather(*checks, return_exceptions=True)

    def others_serve(self, model: str) -> bool:
        """Whether an engine for another model than this has a server that is up."""
        return any(
            any(member.engine.servers().values()) for member in self.members if member is not self._member_for(model)
        )

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        """Sample on the engine of the model for which the prompt was made. Raises EngineError, and NotServed where
        there is none: the list has changed since then, or another process accepted the request.
        """
        member = self._serving(generation.model)
        asked = msgspec.structs.replace(generation, model=member.known_as(generation.model))
        with self._using(member):
            self._under_way[generation.id] = member.engine
            try:
                await member.engine.sample(asked, take, between)
            finally:
                self._under_way.pop(generation.id, None)

    async def render(self, transcript: Transcript, model: str) -> Sequence[int]:
        member = self._serving(model)
        if not isinstance(member.engine, Renderer):
            raise EngineRefused(f"the engine of '{model}' knows no chat template")
        with self._using(member):
            return await member.engine.render(transcript, member.known_as(model))

    def passes_on(self, model: str) -> bool:
        """Whether the engine of a model has servers with an API of their own."""
        member = self._member_for(model)
        return member is not None and isinstance(member.engine, PassesOn)

    @asynccontextmanager
    async def pass_on(self, passed: Passed) -> AsyncGenerator[PassedReply, None]:
        """Ask a server of the model's engine; see the port of requests that are passed on. Raises EngineError."""
        member = self._serving(passed.model)
        if not isinstance(member.engine, PassesOn):
            raise NotServed(f"this process has no servers of the model {passed.model[:100]!r}")
        asked = msgspec.structs.replace(passed, model=member.known_as(passed.model))
        with self._using(member):
            async with member.engine.pass_on(asked) as reply:
                yield reply

    async def finish(self, id: str) -> bool:
        engine = self._under_way.get(id)
        return engine is not None and await engine.finish(id)

    async def change(self, members: Sequence[Member]) -> None:
        """Have these from now on. New ones are started first; those that are left out go once they have no more to do.

        Raises EngineUnavailable where one doesn't start: then all stays as it was.
        """
        async with self._changing:
            kept = {member.engine for member in members}
            before = {member.engine for member in self.members}
            await _start(kept - before)
            gone = [member for member in self.members if member.engine not in kept]
            self._take(members)
            for member in gone:
                self._leaving[member] = asyncio.create_task(self._leave(member))

    async def close(self) -> None:
        async with self._changing:
            leaving = dict(self._leaving)
            for task in leaving.values():
                task.cancel()
            await asyncio.gather(*leaving.values(), return_exceptions=True)
            engines = [member.engine for member in (*self.members, *leaving)]
            await asyncio.gather(*(engine.close() for engine in engines))

    @contextmanager
    def _using(self, member: Member) -> Generator[None]:
        engine = member.engine
        self._running[engine] += 1
        try:
            with _of_model(member):
                yield
        finally:
            self._running[engine] -= 1
            self._ended[engine] = monotonic()

    def _take(self, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._named = _by_name(members)

    async def _leave(self, member: Member) -> None:
        """Close an engine once nothing has run there for a while."""
        self._ended[member.engine] = monotonic()
        left = self._drain_seconds
        while left > 0 or self._running[member.engine]:
            await asyncio.sleep(max(left, self._drain_seconds / 10))
            left = self._ended[member.engine] + self._drain_seconds - monotonic()
        del self._leaving[member], self._running[member.engine], self._ended[member.engine]
        await member.engine.close()

    def _serving(self, model: str) -> Member:
        if (member := self._member_for(model)) is None:
            raise NotServed(f"this process serves no model {model[:100]!r}")
        return member

    def _member_for(self, model: str) -> Member | None:
        """The engine of a model by its id; one that leaves where no other has it."""
        members = (*self.members, *self._leaving)
        return next((each for each in members if not model or not each.name or model == each.name), None)


@contextmanager
def _of_model(member: Member) -> Generator[None]:
    """Have failures say for which model they are."""
    try:
        yield
    except EngineError as error:
        with suppress(EngineUnavailable):
            error.model = member.name or member.card.id
        raise


def _offer(member: Member, named: Mapping[str, Member]) -> ModelOffer:
    try:
        card = member.card
    except EngineUnavailable:
        card = None
    id = member.name or (card.id if card else "")
    names = names_of(id, member.aliases) if id else ()
    return ModelOffer(tuple(name for name in names if named.get(name, member) is member), card)


def _by_name(members: Sequence[Member]) -> dict[str, Member]:
    """The owner of each name. A given name goes before derived ones."""
    given = {name: member for member in members if member.name for name in (member.name, *member.aliases)}
    return {
        name: given.get(name, member)
        for member in reversed(members)
        if member.name
        for name in names_of(member.name, member.aliases)
    }


@lru_cache(maxsize=MAX_ENGINES)
def names_of(id: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """The names by which a model may be asked for, its id first. Those of gpt-oss are known with their owner, too."""
    vendor, slash, name = id.rpartition("/")
    known = (f"{OWNER}{id}",) if not slash else (name,) if vendor + slash == OWNER else ()
    own = known if name.startswith(FAMILY) else ()
    return tuple(dict.fromkeys((id, *own, *aliases)))


async def _start(engines: Iterable[Engine]) -> None:
    """Start engines at once; where one doesn't, none of them stays. Raises EngineUnavailable."""
    started = list(engines)
    outcomes = await asyncio.gather(*(engine.start() for engine in started), return_exceptions=True)
    for failure in outcomes:
        if isinstance(failure, BaseException):
            await asyncio.gather(*(engine.close() for engine in started), return_exceptions=True)
            raise failure


@lru_cache(maxsize=SALTS_CACHED)
def salt_of(prefix: str, tenant: str, wished: str) -> str:
    """The salt that keeps cached prefixes of tenants and of services on the same engine apart, as cache hits would show
    another's prompts. Hexadecimal, as vLLM takes at most 128 characters and not any.
    """
    own = blake2b(wished.encode()).digest() if wished else b""
    return blake2b(f"{prefix}/{tenant}".encode(), digest_size=32, key=own).hexdigest()
