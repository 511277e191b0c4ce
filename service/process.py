"""Opening, starting and closing all that a process needs which serves or works, from the settings."""

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import time
from typing import cast

from service.api.content import USUAL_BOUNDS
from service.backoff import Backoff
from service.build import this_build
from service.engine.engines import Engines, Member, names_of, salt_of
from service.engine.port import AUTO, MODEL_CREATED, SERVER, Engine, EngineUnavailable, ModelCard
from service.engine.servers.engine import PROBE_SECONDS, WAIT_SECONDS, Access, ServersEngine
from service.engine.servers.kind import ServerKind
from service.engine.vllm.servers import Vllm
from service.features.archive.chores import archive_check, archive_chores, end_for_ever
from service.features.browser.citing import citing_of
from service.features.chat_servers.servers import ByChat, LlamaByChat, VllmByChat
from service.features.chats.recognise import digest_after, see
from service.features.demo.engine import DemoEngine
from service.features.experimental.servers import Sglang, Tensorrt
from service.features.llama.local import LlamaLocalEngine
from service.features.llama.servers import Llama
from service.features.mcp.approvals import McpApprovals
from service.features.mcp.settings import servers_in
from service.features.mcp.toolbox import Toolbox, no_server
from service.features.models.speech import Disarming
from service.features.models.templated import TemplatedReadings
from service.features.proxy.passing import PassingEngine
from service.features.python.containers import Containers
from service.features.python.interpreter import CodeInterpreter
from service.features.sandbox.choose import sandbox_of
from service.features.sandbox.port import Sandbox
from service.features.sandbox.settings import LOCAL
from service.features.tenants.directory import Directory
from service.features.tenants.entrance import CountingEntrance, LimitingEntrance, ProjectEntrance
from service.features.tenants.keyring import KeyRing
from service.features.tenants.limits import Limit, Limiter
from service.features.tenants.settling import tenant_chores
from service.features.tenants.usage import Tally
from service.features.vllm_local.local import VllmLocalEngine
from service.loans import Loans
from service.logs import event
from service.metrics.counters import Metrics, make_metrics
from service.pacing import Pacing
from service.ports import Chore
from service.responses.pictures import FETCHED_BYTES, FETCHED_PARTS, ROOM_BYTES, PictureFetcher, fetch_nothing
from service.responses.running import Running
from service.responses.seal import Seals
from service.responses.seen import Recogniser
from service.responses.service import Service, Tenants, Tracing
from service.settings.core import CoreSettings
from service.settings.engines import DEMO, DEMO_MODEL, ENGINE_URLS, EngineEntry, ListedEngine
from service.settings.group import display
from service.settings.keys import Keys
from service.settings.settings import Settings
from service.settings.sources import environment, variable
from service.settings.units import DAY_SECONDS
from service.shares import Room
from service.spans import Tracer
from service.ssrf import outside_of
from service.tools.hosted import HostedTools
from service.tools.port import Tool, ToolLimits
from store.archive.archive import Archive
from store.archive.opening import open_archive as open_archive_at
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.reconciling import Reconciled, Reconciler
from store.errors import ArchiveRefused, ArchiveUnavailable, LayoutMismatch, StoreUnavailable, StoreUnconfirmed
from store.history.approvals import StoredApprovals
from store.history.caps import Caps
from store.history.containers import StoredContainers as Records
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.model import JobLimits
from store.jobs.outbox import Outbox
from store.layout import Layout, Terms, shared_secret
from store.limits import Limits as TenantLimits
from store.redis.conditions import could_not_save
from store.redis.confirm import Safety
from store.redis.connection import Server, connect
from store.registry import Registry
from store.spending import Spending
from store.watcher import UNWATCHED, Watcher

logger = logging.getLogger(__name__)

PICTURE_TYPES = "image/png,image/jpeg,image/webp,image/gif"
"""The types of pictures for which servers are asked; bytes say which one they are."""

DEMO_CONTEXT_TOKENS = 131_072
"""The length of the demo engine's context where nothing says another."""

DOCTOR = "harmonium doctor says what it finds"

SANDBOX_AWAY = Backoff(1.0, 30.0)
"""The pauses in seconds between tries to use a sandbox that was away when this service began."""

STORE_CONNECTIONS = 64
"""The most connections that one process opens to Redis, or to each node of a cluster."""

FIRST_TIMEOUTS = 2
"""How long a lease is until its holder is heard of, in time limits of an operation: the claim's, and the renewal's."""

RESERVED_SECONDS = 30.0
"""After so many seconds without a word of a response, somebody looks whether what it reserved of limits is to be
settled; its place among those at once is free after twice as long."""

USUAL_TOKENS = 512
"""How many tokens a tenant's response is thought to write before any has ended."""


def open_service(settings: Settings, engine: Engine | None = None, sandbox: Sandbox | None = None) -> Service:
    """All that requests and jobs need. `engine` and `sandbox` replace those that the settings name, for tests.

    Nothing is connected yet. Close its parts with `close_service`.
    """
    metrics = make_metrics(settings.workers)
    store = open_store(settings, _Watching(metrics, str(display(settings)["redis_url"])))
    loans = Loans(settings.store_timeout_seconds)
    archive = open_store_archive(settings, store)
    secret = partial(shared_secret, store) if archive is None else archive.secret
    entrance, layout = open_entrance(settings, store, loans), open_layout(settings, store.server)
    return Service(
        settings=settings,
        store=store,
        secret=secret,
        loans=loans,
        conversations=Conversations(store),
        jobs=open_jobs(settings, store),
        tenants=Tenants(entrance, Pacing()),
        running=Running(),
        engine=open_engines(settings, engine),
        toolbox=open_toolbox(settings, store, sandbox),
        pictured=Room(ROOM_BYTES, several=lambda: settings.several_tenants),
        picture_fetcher=_open_picture_fetcher(settings),
        readings=TemplatedReadings(),
        seals=Seals([key.get_secret_value() for key in settings.seal_keys], secret),
        metrics=metrics,
        tracer=tracer_of(settings),
        tracing=_tracing_of(settings),
        layout=layout,
        chores=tuple(_chores(settings, store, metrics, layout, archive, entrance)),
        recogniser=Recogniser(see, digest_after) if settings.chats == "remembered" else None,
        checks=() if archive is None else (archive_check(archive),),
    )


def _chores(
    settings: Settings,
    store: ConversationHistoryStore,
    metrics: Metrics,
    layout: Layout,
    archive: StoreArchive | None,
    entrance: CountingEntrance,
) -> Iterator[Chore]:
    """The work of features beside requests. The HTTP client of webhooks is imported where there is a receiver."""
    yield from tenant_chores(entrance)
    if archive is None:
        yield Chore("ending the archive", partial(end_for_ever, store, layout))
    else:
        yield from archive_chores(archive, settings, layout, metrics)
    if settings.webhook_url:
        from service.features.webhooks.deliver import RETRY_SECONDS, Deliverer, Receiver

        count = metrics.webhooks.labels
        deliverer = Deliverer(
            Outbox(store), Receiver(settings), RETRY_SECONDS, count=lambda outcome: count(outcome).inc()
        )
        yield Chore("webhooks", deliverer.deliver_for_ever, deliverer.wake)


def _open_picture_fetcher(settings: Settings) -> PictureFetcher:
    """The fetcher of pictures; the guard of pages judges their addresses."""
    bounds, fetch = settings.picture_bounds or USUAL_BOUNDS, fetch_nothing
    if bounds.urls:
        from service.features.browser.search.fetcher import Fetcher, FetchLimits  # for who has it

        limits, judge = FetchLimits(bytes=bounds.bytes + 1), outside_of(settings.private_networks)
        fetch = Fetcher("pictures", PICTURE_TYPES, settings.search_hosts, limits, may_reach=judge).whole
    return PictureFetcher(fetch, Room(FETCHED_BYTES, several=lambda: settings.several_tenants, parts=FETCHED_PARTS))


def open_entrance(settings: Settings, store: ConversationHistoryStore, loans: Loans) -> CountingEntrance:
    """The entrance of the tenants whose keys are in the settings and in a store."""
    keys = Keys(settings)
    limits = TenantLimits(store, held_seconds=RESERVED_SECONDS, usual_tokens=USUAL_TOKENS)
    limiter = Limiter(limits, Limit(**settings.tenant_limits), loans, time)
    tally = Tally(Spending(store), away=lambda: store.server.health.away is not None)
    if settings.has_projects:
        directory = open_directory(settings, store, lambda: keys.settings.static_tenants)
        ring = KeyRing(directory.registry, store.listening, time)
        return ProjectEntrance(keys, tally, limiter, directory, ring)
    return (LimitingEntrance if settings.has_limits else CountingEntrance)(keys, tally, limiter)


def tracer_of(settings: Settings) -> Tracer:
    """The tracer of the settings. OpenTelemetry is imported only where they have a URL for traces."""
    if not settings.traces_url:
        return Tracer()
    from service.features.traces.tracing import TEXT_BYTES, TraceBounds, open_tracer

    bounds = TraceBounds(settings.traces_ratio, TEXT_BYTES if settings.traces_contents else 0)
    headers = settings.traces_headers.get_secret_value()
    name = environment(["OTEL_SERVICE_NAME"]).get("OTEL_SERVICE_NAME") or "harmonium"
    return open_tracer(settings.traces_url, headers, bounds, name=name, version=this_build().version)


def _tracing_of(settings: Settings) -> Tracing | None:
    """The spans within a response, where the settings have a URL for traces."""
    if not settings.traces_url:
        return None
    from service.features.traces.traced import TRACING  # for who traces

    return TRACING


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
        event(logger, logging.WARNING, "the store is back", seconds=seconds)
        if could_not_save(failure):
            remedy = "Let it run BGREWRITEAOF before it is restarted: a write that was cut short can keep it from "
            event(logger, logging.ERROR, "the store could not save", remedy=f"{remedy}starting.")

    def waited(self, confirmed: bool, seconds: float) -> None:
        self._metrics.store_confirms.labels("met" if confirmed else "unmet").inc()
        self._metrics.store_confirm_seconds.observe(seconds)

    def removed(self, reason: str, turns: int) -> None:
        self._metrics.turns_removed.labels(reason).inc(turns)

    def contradicted(self, mismatch: LayoutMismatch) -> None:
        message = "the store is not to be used with these settings"
        event(logger, logging.ERROR, message, reason=mismatch.reason, remedy=mismatch.remedy)

    def archived(self, trees: int) -> None:
        self._metrics.archive_trees.inc(trees)

    def not_archived(self, root: str, reason: str) -> None:
        event(logger, logging.ERROR, "a conversation can't be archived", root=root, reason=reason)

    def archive_asked(self, outcome: str) -> None:
        self._metrics.archive_reads.labels(outcome).inc()

    def archive_moved(self, verb: str, size: int) -> None:
        self._metrics.archive_bytes.labels(verb).inc(size)

    def archive_failed(self, error: ArchiveUnavailable) -> None:
        self._metrics.archive_errors.labels("refused" if isinstance(error, ArchiveRefused) else "unavailable").inc()


async def start_service(service: Service) -> None:
    """Start the engine, and the sandbox where there is one. Raises EngineUnavailable, and ArchiveUnfit or
    ArchiveForeign where the archive can't be used.
    """
    with suppress(StoreUnavailable, ArchiveUnavailable):  # every sweep tries again
        if policy := await service.store.evicts():
            event(
                logger,
                logging.WARNING,
                "a full Redis would lose parts of conversations",
                reason=f"maxmemory-policy is {policy}",
                remedy="CONFIG SET maxmemory-policy noeviction, and in its file",
            )
        await know_ids(service)
        for chore in service.chores:
            await chore.start()
    await service.engine.start()
    if service.toolbox.containers is not None:
        await service.toolbox.containers.start()


async def know_ids(service: Service) -> None:
    """Have new ids say that this store has made them, once it has told its secret. Raises StoreUnavailable,
    ArchiveUnavailable, ArchiveUnfit, ArchiveForeign.
    """
    if not service.store.ids.proves:
        service.store.ids.prove_by(await service.secret())


async def close_service(service: Service) -> None:
    """Close what was opened, in the order in which it leans on each other."""
    await service.engine.close()
    await service.tenants.entrance.close()
    await service.loans.close()
    if service.toolbox.containers is not None:
        await service.toolbox.containers.aclose()
    for chore in service.chores:
        await chore.close()
    await service.store.close()
    await service.tracer.close()


def open_layout(settings: Settings, server: Server, *, alone: bool = False) -> Layout:
    """The layout record of the store behind REDIS_URL. `alone` is whether nobody else uses it."""
    build = this_build()
    return Layout(
        server,
        settings.key_prefix,
        Terms(
            shards=settings.shards,
            release=f"harmonium {build.version} (commit {build.commit})",
            limits=settings.store_limits,
            decides=settings.change_limits or alone,
        ),
    )


def open_store(settings: Settings, watcher: Watcher = UNWATCHED) -> ConversationHistoryStore:
    """The store behind REDIS_URL."""
    seconds = settings.store_timeout_seconds
    return ConversationHistoryStore(
        connect(settings.redis_url, max_connections=STORE_CONNECTIONS, timeout_seconds=seconds),
        prefix=settings.key_prefix,
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


def open_archive(settings: Settings, watcher: Watcher = UNWATCHED) -> Archive | None:
    """The archive of turns that leave memory, where the settings name one. It isn't connected to yet.

    Raises ValueError where the URL names none, whose message goes on from the setting's name, and Unsupported where a
    package is missing.
    """
    if not settings.has_archive:
        return None
    return open_archive_at(settings.archive_url, settings.data_dir, watcher=watcher)


def open_store_archive(settings: Settings, store: ConversationHistoryStore) -> StoreArchive | None:
    """The archive of a store, which asks it from then on for what has left it. Raises as `open_archive` does."""
    archive = open_archive(settings, store.server.watcher)
    if archive is None:
        return None
    reconciler = Reconciler(store, archive, _tell_of_going_back)
    return StoreArchive(
        store,
        archive,
        reconcile=reconciler.shard,
        after_seconds=settings.archive_after_seconds,
        evicts=settings.archive_when_down == "evict",
    )


def _tell_of_going_back(number: int, done: Reconciled) -> None:
    """Say that what was deleted was there again, and conversations stood where they stood before."""
    event(
        logger,
        logging.WARNING,
        "Redis went back in time: what was deleted since is deleted again",
        shard=f"{number:02x}",
        conversations=done.trees,
        deleted=done.deleted,
        moved=done.moved,
        under_way=len(done.under_way),
        unreadable=done.unreadable,
        remedy="It goes on by itself; `harmonium archive verify` finds what is left. An archive that was put back "
        "from an older copy, too, is taken with `harmonium archive accept`",
    )


def open_directory(
    settings: Settings, store: ConversationHistoryStore, tenants: Callable[[], Sequence[str]] | None = None
) -> Directory:
    """The projects, accounts and keys in a store. `tenants` are those that have keys in the settings of now."""
    return Directory(Registry(store), time, tenants or (lambda: settings.static_tenants))


def open_jobs(settings: Settings, store: ConversationHistoryStore) -> Jobs:
    """The background responses in a store."""
    limits = JobLimits(
        lease_seconds=settings.lease_seconds,
        first_seconds=FIRST_TIMEOUTS * settings.store_timeout_seconds,
        waiting=settings.max_queued,
        log_bytes=settings.max_log_bytes,
        log_seconds=settings.stream_retention_seconds,
    )
    return Jobs(store, limits)


def open_toolbox(settings: Settings, store: ConversationHistoryStore, sandbox: Sandbox | None) -> HostedTools:
    """The MCP servers that the settings name, and Python in containers of the sandbox, or of the one that the settings
    name. The client of servers is imported where there are any: it takes 50 MiB.
    """
    limits, opener = ToolLimits(call_seconds=settings.tool_seconds), no_server
    if settings.mcp_servers or settings.mcp_allow:
        from service.features.mcp.session import opener_of
        from service.features.mcp.transports import PROCESSES, Processes, tls

        tls()
        processes = Processes(PROCESSES, several=lambda: settings.several_tenants)
        opener = opener_of(limits, processes, outside_of(settings.private_networks))
    servers = servers_in(Path(settings.mcp_servers)) if settings.mcp_servers else {}
    allow, name = settings.mcp_allow, variable("mcp_allow")
    tools: list[Tool] = [Toolbox(servers, allow, opener, allowing=name)]
    tools += [] if settings.search == "none" else [_open_browser(settings)]
    containers = None
    if (sandbox := sandbox or sandbox_of(settings)) is not None:
        # those of a sandbox of this process alone have its mark
        place = settings.sandbox if settings.sandbox not in ("", LOCAL) else f"{LOCAL} {store.token()}"
        again = None if place.startswith(LOCAL) else SANDBOX_AWAY
        containers = Containers(Records(store), sandbox, place, time, again)
        tools.append(CodeInterpreter(containers, seconds=settings.tool_seconds))
    approvals = McpApprovals(StoredApprovals(store))
    return HostedTools(tools, approvals=approvals, cite=citing_of, containers=containers)


def _open_browser(settings: Settings) -> Tool:
    """The browser over what the settings search. The HTML reader is imported only where there is a browser."""
    from service.features.browser.browsing import Browsing
    from service.features.browser.search.folder import ADDRESS, Folder
    from service.features.browser.search.services import searcher_of
    from service.features.browser.search.web import Web

    if settings.search == "folder":
        folder = Folder(Path(settings.search_folder), settings.search_url or ADDRESS)
        return Browsing(folder.search, folder.page)
    pages = Web(settings.search_hosts, may_reach=outside_of(settings.private_networks))
    key = settings.search_key.get_secret_value()
    return Browsing(searcher_of(settings.search, url=settings.search_url, key=key), pages.page)


def open_engines(settings: CoreSettings, engine: Engine | None = None) -> Engines:
    """The engines that the settings name, or the one that is given."""
    if engine is None and settings.engines:
        return Engines(_members(settings, {}))
    stood_in_for = names_of(DEMO_MODEL, ()) if engine is None and settings.stands_in else ()
    return Engines([Member(engine or open_engine(settings), aliases=(*stood_in_for, *settings.model_aliases))])


async def reread(service: Service, taken: bool) -> None:
    """Replace the engines after the files were read again, if they were `taken`."""
    service.metrics.rereads.labels("taken" if taken else "refused").inc()
    settings = service.tenants.keys.settings
    if not taken or not settings.listed_engines:
        return
    known = {member.key: member for member in service.engine.members}
    members = _members(settings, known)
    try:
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


def _open(settings: CoreSettings, engine: ListedEngine) -> Engine:
    """An engine of the file: the demo engine, or one of servers."""
    listed = engine.listed
    if listed.kind == DEMO:
        return _open_demo(settings, engine.model, listed.context_tokens)
    tenant, shared = next(iter(settings.tenants)), settings.several_tenants
    kinds: dict[str, Callable[[], ServerKind]] = {
        "vllm": lambda: Vllm(Disarming()),
        "sglang": Sglang,
        "tensorrt": lambda: Tensorrt(shared=shared, salt=None if shared else salt_of(settings.key_prefix, tenant, "")),
        "llama": lambda: Llama(shared=shared),
        "chat": lambda: ByChat(shared=shared),
    }
    markup = listed.markup
    if markup == SERVER:
        kinds |= {"vllm": VllmByChat, "llama": lambda: LlamaByChat(shared=shared)}
        markup = AUTO
    kind, access = kinds[listed.kind](), _access(settings, engine)
    context, sees = listed.context_tokens, listed.sees
    return PassingEngine(kind, access, model=engine.model, context_tokens=context, markup=markup, sees=sees)


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


def open_engine(settings: CoreSettings) -> Engine:
    """The engine that ENGINE names."""
    name, context = settings.model, settings.context_tokens
    if settings.engine in ENGINE_URLS:
        listed = EngineEntry(name, settings.engine, context_tokens=context)
        return _open(settings, ListedEngine(listed, settings.engine_urls, settings.engine_api_key))
    model, args = settings.loaded_model, settings.local_args
    if settings.engine == "vllm-local":
        return VllmLocalEngine(model, args, served_as=name, context_tokens=context)
    if settings.engine == "llama-local":
        shared = settings.several_tenants
        return _LlamaLocal(Path(model), args, served_as=name, context_tokens=context, shared=shared)
    return _open_demo(settings, name or DEMO, context)


class _LlamaLocal(PassingEngine, LlamaLocalEngine):
    """A llama.cpp server of our own, to which requests are passed on, too."""


def _open_demo(settings: CoreSettings, model: str, context_tokens: int) -> Engine:
    card = ModelCard(model, MODEL_CREATED, context_tokens or DEMO_CONTEXT_TOKENS, real=False)
    return DemoEngine(card, settings.demo_tokens_per_second)
