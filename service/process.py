"""The parts of a process that serves or works: composing them from the settings and the features, starting, closing.

FEATURES is the list of features. Each is a folder of service/features, whose `feature.py`, if any, says what it gives.
A feature whose folder isn't there is left out, and those that need it.
"""

import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import msgspec
import typer
from fastapi import APIRouter

from service.api.approving import NO_APPROVALS, Approvals
from service.api.citing import Cite, cite_nothing
from service.build import this_build
from service.engine.engines import Engines, Member, names_of
from service.engine.port import AUTO, SERVER, Engine, EngineUnavailable
from service.engine.servers.engine import PROBE_SECONDS, WAIT_SECONDS, Access, ServersEngine
from service.engine.servers.kind import ServerKind, Speeches
from service.engine.vllm.servers import Vllm
from service.entrance import Entrance
from service.loans import Loans
from service.logs import event
from service.metrics.counters import Metrics, make_metrics
from service.pacing import Pacing
from service.ports import Chore, ReadyCheck
from service.responses.attachments import NO_ATTACHMENTS, Attachments
from service.responses.pictures import (
    FETCHED_BYTES,
    FETCHED_PARTS,
    ROOM_BYTES,
    Fetch,
    PictureFetcher,
    fetch_nothing,
)
from service.responses.readings import Readings
from service.responses.running import Running
from service.responses.seal import Seals
from service.responses.seen import Recogniser
from service.responses.service import Service, Tenants, Tracing
from service.settings.core import CoreSettings
from service.settings.engines import CHAT, DEMO, DEMO_MODEL, ENGINE_URLS, EngineEntry, ListedEngine
from service.settings.group import display
from service.settings.keys import Keys
from service.settings.settings import read_settings, settings_with
from service.settings.sources import SettingsError, variable
from service.settings.units import DAY_SECONDS
from service.shares import Room
from service.spans import Tracer
from service.tools.hosted import HostedTools
from service.tools.port import Tool
from service.web.dialect import Dialect, Translate
from store.errors import ArchiveRefused, ArchiveUnavailable, LayoutMismatch, StoreUnavailable, StoreUnconfirmed
from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits
from store.layout import Layout, Terms, shared_secret
from store.redis.conditions import could_not_save
from store.redis.confirm import Safety
from store.redis.connection import connect
from store.watcher import UNWATCHED, Watcher

logger = logging.getLogger(__name__)

FEATURES: Mapping[str, tuple[str, ...]] = {
    "models": (),
    "demo": (),
    "vllm_local": (),
    "llama": ("models",),
    "chat_servers": ("llama", "models"),
    "proxy": (),
    "tenants": (),
    "file_search": (),
    "mcp": ("file_search",),
    "browser": (),
    "webhooks": (),
    "traces": (),
    "sandbox": (),
    "python": ("sandbox",),
    "catalogue": (),
    "archive": ("catalogue",),
    "files": (),
    "sockets": (),
    "console": ("catalogue", "models"),
    "chats": (),
    "open_responses": (),
    "client": (),
    "batches": ("client", "files"),
    "trajectories": ("client", "models"),
    "embedded": (),
    "operator": ("archive", "client", "sandbox", "webhooks"),
}
"""The features, each with those that it needs."""

NO_ENGINE = "this installation has no engine {}"

DOCTOR = "harmonium doctor says what it finds"

STORE_CONNECTIONS = 64
"""The most connections that one process opens to Redis, or to each node of a cluster."""

FIRST_TIMEOUTS = 2
"""How long a lease is until its holder is heard of, in time limits of an operation: the claim's, and the renewal's."""


class EngineKinds:
    """The engines that there are, by the names of their kinds: the core's is vLLM's servers."""

    def __init__(self) -> None:
        self.speeches: Callable[[], Speeches] = Speeches
        """Reads how the model of a server speaks that doesn't speak Harmony."""
        self.server_engine: type[ServersEngine] = ServersEngine
        """The engine of servers."""
        self.servers: dict[str, Callable[[CoreSettings], ServerKind]] = {"vllm": lambda _: Vllm(self.speeches())}
        """The kinds of servers."""
        self.templating: dict[str, Callable[[CoreSettings], ServerKind]] = {}
        """The same kinds where the servers themselves make the prompts, and read what their model writes."""
        self.own: dict[str, Callable[[CoreSettings, str, int], Engine]] = {}
        """Engines without servers: the settings, the model's name, and its context in tokens, where 0 is any."""

    def of_servers(self, listed: EngineEntry) -> Callable[[CoreSettings], ServerKind]:
        """The kind of an engine's servers. Raises EngineUnavailable where this installation has none such."""
        reads = listed.markup == SERVER and listed.kind != CHAT
        found = (self.templating if reads else self.servers).get(listed.kind)
        if found is None:
            which = f"{listed.kind!r} with markup {SERVER!r}" if reads else repr(listed.kind)
            raise EngineUnavailable(NO_ENGINE.format(which))
        return found

    def without_servers(self, kind: str) -> Callable[[CoreSettings, str, int], Engine]:
        """An engine without servers. Raises EngineUnavailable where this installation has none such."""
        if kind not in self.own:
            raise EngineUnavailable(NO_ENGINE.format(repr(kind)))
        return self.own[kind]


@dataclass
class Parts:
    """The parts of a process: the core's own, until a feature puts others in their places or adds to them."""

    settings: CoreSettings
    store: ConversationHistoryStore
    metrics: Metrics
    loans: Loans
    layout: Layout
    entrance: Entrance
    secret: Callable[[], Awaitable[bytes]]
    readings: Readings = field(default_factory=Readings)
    recogniser: Recogniser | None = None
    tracer: Tracer = field(default_factory=Tracer)
    tracing: Tracing | None = None
    announces: bool = False
    keeps_ids: bool = False
    tools: list[Tool] = field(default_factory=list[Tool])
    approvals: Approvals = NO_APPROVALS
    cite: Cite = cite_nothing
    fetch_picture: Fetch = fetch_nothing
    attachments: Attachments = NO_ATTACHMENTS
    chores: list[Chore] = field(default_factory=list[Chore])
    checks: list[ReadyCheck] = field(default_factory=list[ReadyCheck])


Compose = Callable[[Parts], None]


@dataclass(frozen=True)
class Offered:
    """The facts that the routes of a process depend on: `passes_on` is whether a server takes requests that are passed
    on, `remembers` whether chat completions are made here, `administers` whether there are projects in the store.
    """

    passes_on: bool = True
    remembers: bool = False
    administers: bool = True


class Feature:
    """A feature in a process. It overrides what it has, and imports what it needs for it only then."""

    dialects: tuple[Dialect, ...] = ()
    """The dialects of the Responses API in which it answers."""
    places: Mapping[str, tuple[str, str]] = {}
    """Where to go from `GET /`: paths and their descriptions, by name."""
    tool_settings: Mapping[str, str] = {}
    """The settings that give its tools, by the types of these."""

    def engines(self, kinds: EngineKinds) -> None:
        """Add its kinds of engines."""

    def compose(self, parts: Parts) -> None:
        """Put its parts among those of a process."""

    def routers(self, offered: Offered) -> Iterable[APIRouter]:
        """Its routes."""
        return ()

    def responses_routers(self) -> Iterable[APIRouter]:
        """Its routes that belong to the Responses API, and are served in each dialect of it."""
        return ()

    def translations(self, settings: CoreSettings) -> Mapping[str, Translate]:
        """The translations of other APIs' requests into those for responses, by their endpoints."""
        return {}

    def works(self, service: Service) -> Iterable[Chore]:
        """Its work beside requests that needs the whole service."""
        return ()

    async def under_way(self, service: Service) -> Mapping[str, Sequence[object]]:
        """Its work for all tenants, by name, for the console's page of health. Raises StoreError."""
        return {}

    def state(self, service: Service, admission: Any) -> Mapping[str, object]:
        """The values that its routes find in the state of the application, by name."""
        return {}

    def socket_protocol(self) -> Any:
        """The protocol of WebSockets, where it serves some."""
        return None

    def commands(self, app: typer.Typer) -> None:
        """Add its commands."""

    async def note(
        self, store: ConversationHistoryStore, type: str, id: str, data: Mapping[str, object] | None = None
    ) -> None:
        """Have its log say that somebody has done something of this type on the command line. It never fails."""

    def own_redis(self, settings: CoreSettings, *, serves: bool, makes: bool) -> AbstractContextManager[str] | None:
        """The URL of a Redis of its own, until the block's end; None where it has none (commands/serve.py)."""
        return None

    def beside_embedded(self, settings: CoreSettings) -> Mapping[str, object]:
        """Its settings beside an embedded server, where they are others than the given ones."""
        return {}

    async def join(self, settings: CoreSettings, store: ConversationHistoryStore, *, alone: bool) -> Sequence[str]:
        """Check at the start that it can be used, and warn of what is amiss; the warnings. `alone`: the store is an
        embedded one. Raises Unsupported, StoreUnavailable, ArchiveUnavailable.
        """
        return ()


@cache
def present() -> tuple[str, ...]:
    """The packages of the features that are there, in the order of the list."""
    found = dict[str, str]()
    for name, needed in FEATURES.items():
        package = f"service.features.{name}"
        spec = find_spec(package)
        there = spec is not None and spec.origin is not None  # a folder of caches alone has no origin
        if there and all(each in found for each in needed):
            found[name] = package
    return tuple(found.values())


@cache
def features() -> tuple[Feature, ...]:
    """The features that are there and have a part in a process of their own."""
    modules = (f"{package}.feature" for package in present())
    return tuple(cast(Feature, import_module(each).FEATURE) for each in modules if find_spec(each) is not None)


def _groups() -> Iterator[type[CoreSettings]]:
    """The groups of settings of the features that are there."""
    for package in present():
        if find_spec(f"{package}.settings") is not None:
            yield import_module(f"{package}.settings").GROUP


Settings: type[CoreSettings] = settings_with(_groups(), __name__)
"""Everything that can be set."""


def lacks(*names: str) -> str:
    """Words for those of these features, or of all, that are away; empty where none is."""
    away = ", ".join(name for name in names or FEATURES if f"service.features.{name}" not in present())
    return away and f"lacks the feature{'s' * (',' in away)} {away}"


def load_settings(**overrides: object) -> CoreSettings:
    """Read the settings once. An override that is not None wins over the environment, `.env` and the default.

    Raises SettingsError, whose message never holds a secret.
    """
    settings = read_settings(Settings, overrides, lacks())
    for wanted, told, feature in (
        (settings.has_projects, f"{variable('admin_key')} and {variable('projects')} make projects", "tenants"),
        (settings.chats == "remember", f"{variable('chats')}=remember remembers chats", "chats"),
        ("urls" in settings.pictures, f"{variable('pictures')}=urls fetches pictures", "browser"),
    ):
        if wanted and lacks(feature):
            raise SettingsError(f"{told}, and this installation {lacks(feature)}; leave it out")
    return settings


def also_spoken() -> tuple[Dialect, ...]:
    """The dialects of the Responses API beside OpenAI's."""
    return tuple(dialect for feature in features() for dialect in feature.dialects)


def open_service(settings: CoreSettings, engine: Engine | None = None, compose: Compose | None = None) -> Service:
    """All that requests and jobs need. `engine` replaces the one that the settings name, and `compose` changes the
    parts after all features have, for tests.

    Nothing is connected yet. Close its parts with `close_service`.
    """
    metrics = make_metrics(settings.workers)
    store = open_store(settings, _Watching(metrics, str(display(settings)["redis_url"])))
    parts = Parts(
        settings=settings,
        store=store,
        metrics=metrics,
        loans=Loans(settings.store_timeout_seconds),
        layout=open_layout(settings, store),
        entrance=Entrance(Keys(settings)),
        secret=partial(shared_secret, store),
    )
    for feature in features():
        feature.compose(parts)
    if compose is not None:
        compose(parts)
    several = partial(getattr, settings, "several_tenants")
    service = Service(
        settings=settings,
        store=store,
        secret=parts.secret,
        loans=parts.loans,
        conversations=Conversations(store),
        jobs=open_jobs(settings, store),
        tenants=Tenants(parts.entrance, Pacing()),
        running=Running(),
        engine=open_engines(settings, engine),
        toolbox=HostedTools(parts.tools, approvals=parts.approvals, cite=parts.cite),
        pictured=Room(ROOM_BYTES, several=several),
        picture_fetcher=PictureFetcher(parts.fetch_picture, Room(FETCHED_BYTES, several=several, parts=FETCHED_PARTS)),
        readings=parts.readings,
        seals=Seals([key.get_secret_value() for key in settings.seal_keys], parts.secret),
        metrics=metrics,
        tracer=parts.tracer,
        tracing=parts.tracing,
        layout=parts.layout,
        chores=tuple(parts.chores),
        recogniser=parts.recogniser,
        checks=tuple(parts.checks),
        attachments=parts.attachments,
        announces=parts.announces,
        keeps_ids=parts.keeps_ids,
    )
    more = [chore for feature in features() for chore in feature.works(service)]
    return msgspec.structs.replace(service, chores=(*service.chores, *more)) if more else service


class _Watching(Watcher):
    """Counts what the store and its archive do, and logs once that the store goes away, with what to do, and once that
    it is back; once, too, that somebody has made it one that this process must not use. `url` is where it is, without
    its password.
    """

    def __init__(self, metrics: Metrics, url: str) -> None:
        self._metrics = metrics
        self._url = url

    def took(self, seconds: float) -> None:
        self._metrics.store_seconds.observe(seconds)

    def failed(self, why: str) -> None:
        self._metrics.store_errors.labels(why).inc()

    def gone(self, failure: StoreUnavailable) -> None:
        message = "the store lags behind" if isinstance(failure, StoreUnconfirmed) else "the store is away"
        event(logger, logging.ERROR, message, url=self._url, reason=str(failure), remedy=DOCTOR)

    def back(self, seconds: float, failure: StoreUnavailable) -> None:
        event(logger, logging.WARNING, "the store is back", away_seconds=seconds)
        if could_not_save(failure):
            remedy = "Run BGREWRITEAOF before a restart: a write that was cut short can prevent the "
            event(logger, logging.ERROR, "the store could not save", remedy=f"{remedy}start.")

    def waited(self, confirmed: bool, seconds: float) -> None:
        self._metrics.store_confirms.labels("met" if confirmed else "unmet").inc()
        self._metrics.store_confirm_seconds.observe(seconds)

    def removed(self, reason: str, turns: int) -> None:
        self._metrics.turns_removed.labels(reason).inc(turns)

    def contradicted(self, mismatch: LayoutMismatch) -> None:
        message = "the store doesn't accept these settings"
        event(logger, logging.ERROR, message, reason=mismatch.reason, remedy=mismatch.remedy)

    def archived(self, trees: int) -> None:
        self._metrics.archive_trees.inc(trees)

    def not_archived(self, root: str, reason: str) -> None:
        event(logger, logging.ERROR, "a conversation can't be archived", root_id=root, reason=reason)

    def archive_asked(self, outcome: str) -> None:
        self._metrics.archive_reads.labels(outcome).inc()

    def archive_moved(self, direction: str, size: int) -> None:
        self._metrics.archive_bytes.labels(direction).inc(size)

    def archive_failed(self, error: ArchiveUnavailable) -> None:
        self._metrics.archive_errors.labels("refused" if isinstance(error, ArchiveRefused) else "unavailable").inc()


async def start_service(service: Service) -> None:
    """Start the chores and the engine. Raises EngineUnavailable, and ArchiveUnfit or
    ArchiveForeign where the archive can't be used.
    """
    with suppress(StoreUnavailable, ArchiveUnavailable):  # every sweep tries again
        await service.layout.read()  # by which tenants' own data is placed
        await service.know_ids()
    for chore in service.chores:
        with suppress(StoreUnavailable, ArchiveUnavailable):
            await chore.start()
    await service.engine.start()


async def close_service(service: Service) -> None:
    """Close what was opened, in the order in which it leans on each other."""
    await service.engine.close()
    await service.tenants.entrance.close()
    await service.loans.close()
    for chore in service.chores:
        await chore.close()
    await service.store.close()
    await service.tracer.close()


def open_layout(settings: CoreSettings, store: ConversationHistoryStore, *, alone: bool = False) -> Layout:
    """The layout record of the store. `alone` is whether nobody else uses it."""
    build = this_build()
    return Layout(
        store.server,
        store.keyspace,
        Terms(
            shards=settings.shards,
            release=f"harmonium {build.version} (commit {build.commit})",
            limits=settings.store_limits,
            decides=settings.change_limits or alone,
        ),
    )


def open_store(settings: CoreSettings, watcher: Watcher = UNWATCHED) -> ConversationHistoryStore:
    """The store behind REDIS_URL."""
    seconds = settings.store_timeout_seconds
    return ConversationHistoryStore(
        connect(settings.redis_url, max_connections=STORE_CONNECTIONS, timeout_seconds=seconds),
        prefix=settings.redis_prefix,
        shards=settings.shards,
        timeout_seconds=seconds,
        max_chain_bytes=settings.max_chain_bytes,
        caps=Caps(
            responses=settings.max_responses,
            trees=settings.max_trees,
            bytes=settings.max_bytes,
            idle_seconds=settings.idle_days * DAY_SECONDS,
            named_idle_seconds=settings.conversation_idle_days * DAY_SECONDS,
            spent_seconds=settings.usage_days * DAY_SECONDS,
        ),
        cache_bytes=settings.store_cache_bytes,
        pin_seconds=settings.pin_seconds,
        safety=Safety(settings.store_replicas, settings.store_fsync),
        watcher=watcher,
    )


def open_jobs(settings: CoreSettings, store: ConversationHistoryStore) -> Jobs:
    """The background responses in a store."""
    limits = JobLimits(
        lease_seconds=settings.lease_seconds,
        first_seconds=FIRST_TIMEOUTS * settings.store_timeout_seconds,
        waiting=settings.max_queued_responses,
        log_bytes=settings.max_event_log_bytes,
        log_seconds=settings.stream_retention_seconds,
    )
    return Jobs(store, limits)


def open_engines(settings: CoreSettings, engine: Engine | None = None) -> Engines:
    """The engines that the settings name, or the one that is given."""
    if engine is None and settings.engines:
        return Engines(_members(settings, {}))
    stood_in_for = names_of(DEMO_MODEL, ()) if engine is None and settings.stands_in else ()
    return Engines([Member(engine or open_engine(settings), aliases=(*stood_in_for, *settings.model_aliases))])


async def reread(service: Service, taken: bool) -> None:
    """Replace the engines after the files were read again, if they were `taken`."""
    service.metrics.reloads.labels("applied" if taken else "refused").inc()
    settings = service.tenants.keys.settings
    if not taken or not settings.listed_engines:
        return
    known = {member.key: member for member in service.engine.members}
    try:
        members = _members(settings, known)
        await service.engine.change(members)
        for listed, member in zip(settings.listed_engines, members, strict=True):
            if listed.key in known and listed.listed.kind != DEMO:
                await cast(ServersEngine, member.engine).change(_access(settings, listed))
    except EngineUnavailable as error:
        event(logger, logging.ERROR, "the engines stay as they were", reason=str(error))


def _members(settings: CoreSettings, known: Mapping[Hashable, Member]) -> list[Member]:
    """The engines of the file, those that are `known` by their keys as they are."""
    members: list[Member] = []
    for engine in settings.listed_engines:
        listed, key = engine.listed, engine.key
        opened = known[key].engine if key in known else _open(settings, engine)
        members.append(Member(opened, listed.name, engine.model, listed.aliases, listed.max_output_tokens, key))
    return members


def open_engine(settings: CoreSettings) -> Engine:
    """The engine that ENGINE names. Raises EngineUnavailable where this installation has no such engine."""
    name, context = settings.model, settings.context_tokens
    if settings.engine in ENGINE_URLS:
        listed = EngineEntry(name, settings.engine, context_tokens=context)
        return _open(settings, ListedEngine(listed, settings.engine_urls, settings.engine_api_key))
    return engine_kinds().without_servers(settings.engine)(settings, name, context)


def _open(settings: CoreSettings, engine: ListedEngine) -> Engine:
    """An engine of the file: the demo engine, or one of servers. Raises EngineUnavailable."""
    listed, kinds = engine.listed, engine_kinds()
    if listed.kind == DEMO:
        return kinds.without_servers(DEMO)(settings, engine.model, listed.context_tokens)
    return kinds.server_engine(
        kinds.of_servers(listed)(settings),
        _access(settings, engine),
        model=engine.model,
        context_tokens=listed.context_tokens,
        markup=AUTO if listed.markup == SERVER else listed.markup,
        sees=listed.sees,
        keeps=listed.keeps,
    )


def check_engines(settings: CoreSettings) -> None:
    """Raises EngineUnavailable where this installation lacks an engine that the settings name."""
    kinds = engine_kinds()
    for each in [each.listed for each in settings.listed_engines] or [EngineEntry("", settings.engine)]:
        if each.kind in ENGINE_URLS:
            kinds.of_servers(each)
        else:
            kinds.without_servers(each.kind)


def engine_kinds() -> EngineKinds:
    """The engines that there are."""
    kinds = EngineKinds()
    for feature in features():
        feature.engines(kinds)
    return kinds


def _access(settings: CoreSettings, engine: ListedEngine) -> Access:
    """How to reach the servers of an engine."""
    return Access(
        urls=engine.urls,
        weights=engine.listed.weights,
        api_key=engine.api_key.get_secret_value(),
        connections=engine.listed.connections or max(settings.max_concurrent_requests, settings.worker_concurrency),
        kv_tokens=engine.listed.kv_tokens or 0,
        wait_seconds=WAIT_SECONDS,
        probe_seconds=PROBE_SECONDS,
    )
