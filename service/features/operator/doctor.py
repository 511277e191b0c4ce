"""`harmonium doctor`: asks the Redis of the settings about itself, and looks at all else that `serve` needs: port,
keys, engine, data folder and disk. It shows what keeps it from serving, and what could lose or expose conversations.

store/doctor/doctor.py has the checks of a Redis; the others are here. An embedded server is asked while it runs, or
else started for the check. Never change a setting here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from time import monotonic
from typing import Annotated, NamedTuple, TypeVar
from urllib.parse import parse_qs, urlsplit

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from service.commands.options import EXIT_FAILED, AsJson, asking, fail, show, with_settings
from service.commands.serve import StartError, address_of, listen, url_of, vllm_beside
from service.engine.port import Engine, EngineUnavailable, Released
from service.features.archive.settings import SQLITE
from service.features.client.errors import ClientError
from service.features.client.options import flag, option, service_of
from service.features.client.profile import Profile
from service.features.client.service import ClientBounds, Json, RemoteService
from service.features.operator.gpu import examine_gpu
from service.features.sandbox.choose import sandbox_of
from service.features.sandbox.port import Sandbox, Unusable
from service.process import Settings, open_archive, open_engine, open_engines, open_store
from service.settings.core import LEAST_KEY_CHARS, is_loopback
from service.settings.group import display
from service.settings.keys import with_short_keys
from service.settings.sources import variable
from store.archive.archive import Archive
from store.backup import ownership
from store.backup.archiving.shards import Waiting, is_full, waiting
from store.doctor.doctor import Expected, Finding, Level, Verdict, finding, judge, unreachable, worst_first
from store.doctor.examine import Examined, examine
from store.embedded import ARCHIVE, EmbeddedServer
from store.embedded import address_of as socket_of
from store.errors import ArchiveRefused, DataFolderBusy, StoreError, StoreUnavailable
from store.guard import free_bytes
from store.history.history import ConversationHistoryStore
from store.redis import address
from store.redis.address import AddressKind

COLORS = {Level.OK: "green", Level.WARN: "yellow", Level.UNSAFE: "bold red"}

ANSWER_SECONDS = 2.0
"""How long the program at the port may take to say what it is."""

MAX_ANSWER_BYTES = 1 << 16

SANDBOX_REMEDY = "docs/tools.md says what each reason means, and what to do"
ARCHIVE_REMEDY = "docs/archive.md says what a store has to do, and what each warning means"
BACKLOG_SECONDS = 600.0
"""How much longer than HARMONIUM_ARCHIVE_AFTER_SECONDS a tree may wait to be archived."""

BACKLOG_REMEDY = "let a service run, which archives; if one does, its log says why `nothing is archived`"
UNNAMED_REMEDY = (
    "name one with HARMONIUM_ARCHIVE_URL that all services of this Redis reach: docs/archive.md has the kinds"
)
UNTOLD = "no server tells whether it has VLLM_XGRAMMAR_CACHE_MB=0, as gpt-oss needs it"
OLD_REMEDY = "docs/deploy.md#versions-of-vllm says what each version lacks"
FOLDER_REMEDY = "let this user have it alone, or name another folder with HARMONIUM_DATA_DIR"

METADATA = {"harmonium": "doctor"}
"""The metadata of the responses that a running service is asked for."""

TOKENS = 64
"""The most of each answer: it need not be whole."""

T = TypeVar("T")


@with_settings("host", "port", "engine", "engine_url", "local_model", "model", "redis_url", "data_dir")
def doctor(
    settings: Settings,
    url: Annotated[
        str | None,
        option(
            "--url", "URL", "A running service, which is asked for one response with the key in HARMONIUM_CLIENT_KEY."
        ),
    ] = None,
    gpu: Annotated[bool, flag("--gpu", "Whether vLLM's image can run on this machine: driver, memory, disk.")] = False,
    as_json: AsJson = False,
    everything: Annotated[bool, flag("--all", "Show what is ok, too, as --url does.")] = False,
) -> int:
    """Say what keeps `serve` from serving, and what could cost you conversations.

    Every finding says what it is now, why it matters and what to do. `unsafe` is what loses conversations, shows them
    to others, or lets none be made: a policy that evicts keys, nothing on disk, a replica, no password, an engine that
    doesn't answer, a port that another program has. `warn` is what should be looked at. The exit status is 1 if
    anything is unsafe, so that a script can go on only if nothing is. Nothing is changed.

    It looks at what `serve` would use with the same settings: the Redis, the primary behind Sentinels, or every primary
    of a cluster; the port, the API keys, the engine. An embedded server is asked while it runs, or else started for a
    moment, in its data folder. With --url a response is made, retrieved, continued and deleted there, too.
    """
    with asking("can't check"):
        try:
            found = diagnose(settings, None if url is None else service_of(url), gpu=gpu)
        except ClientError as error:
            fail(f"can't check: {error}")
    safe = all(each.level is not Level.UNSAFE for each in found)
    redis = str(display(settings)["redis_url"] or f"embedded in {settings.data_dir}")
    if as_json:
        show({"safe": safe, "redis": redis, "findings": [asdict(each) for each in found]}, (), as_json=True)
    else:
        _print(redis, found, Console(), everything=everything or gpu or url is not None)
    return 0 if safe else EXIT_FAILED


def _print(redis: str, found: Sequence[Finding], console: Console, *, everything: bool) -> None:
    """Print what is not ok, or `everything`, and how many findings there are of each level."""
    alike: dict[Finding, list[str]] = {}
    for each in found:  # as if there were one node, each with the nodes of which it is true
        alike.setdefault(replace(each, node=""), []).extend([each.node] if each.node else [])
    table = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2))  # a cut name would be of no use
    for each, nodes in alike.items():
        if everything or each.level is not Level.OK:
            text = Text.assemble((" ".join((each.what, *nodes)), "bold"), f": {each.now}")
            if each.remedy:
                text.append(f"\n{each.why}", "dim").append(f"\n{each.remedy}")
            table.add_row(Text(each.level, COLORS[each.level]), text)
    console.print(table)
    console.print(Text(redis))
    counts = ", ".join(f"{sum(each.level is level for each in found)} {level}" for level in Level)
    console.print(counts if everything else f"{counts}; --all shows each")


def diagnose(settings: Settings, running: RemoteService | None = None, *, gpu: bool = False) -> list[Finding]:
    """The findings on the settings: their Redis, and what else `serve` needs; on a service that is `running`; and on
    the machine as one for a `gpu`.

    Raises OSError, ValueError and TypeError where that Redis can't even be asked.
    """
    found = [_keys(settings), _port(settings), _engine(settings), _sandbox(settings), _webhooks(settings)]
    found += [_archive(settings), *_redis(settings)]
    if running is not None:
        found.append(_response(running))
    if gpu:
        found += examine_gpu()
    return worst_first(found)


def _redis(settings: Settings) -> list[Finding]:
    """The findings on the settings' Redis, or on its data folder."""
    why = "conversations are kept in it"
    try:
        with server_url(settings) as url:
            examined = asyncio.run(_examine(url, settings))
    except StoreUnavailable as error:
        if settings.redis_url:
            return [unreachable(str(error))]
        return [finding("data folder", why, (Level.UNSAFE, str(error), FOLDER_REMEDY))]
    except OSError as error:
        if settings.redis_url:
            raise
        now = f"{settings.data_dir}: {error.strerror}"
        return [finding("data folder", why, (Level.UNSAFE, now, FOLDER_REMEDY))]
    found = judge(expected_of(settings), examined)
    if not settings.redis_url:
        found.append(finding("data folder", why, (Level.OK, str(settings.data_dir), "")))
    return found


def _keys(settings: Settings) -> Finding:
    """Whether API keys can be guessed. The settings see to it that others can't connect without one."""
    why, count = "whoever has a key can read all conversations of its tenant", len(settings.api_keys)
    if short := with_short_keys(settings):
        now = f"fewer than {LEAST_KEY_CHARS} characters, of {', '.join(short)}"
        return finding("API keys", why, (Level.WARN, now, "openssl rand -hex 32 makes one that can't be guessed"))
    now = f"{count}, of {len(settings.tenants)} tenants" if count else "none: only this machine can connect"
    return finding("API keys", why, (Level.OK, now, ""))


def _port(settings: Settings) -> Finding:
    """Whether `serve` can listen, or does so already."""
    why = "`harmonium serve` listens there"
    try:
        listener = listen(settings.host, settings.port)
    except StartError as error:
        now, _, remedy = str(error).partition("; ")
        url = url_of(settings.host, settings.port)
        if _is_harmonium(url):
            return finding("port", why, (Level.OK, f"harmonium answers at {url}", ""))
        return finding("port", why, (Level.UNSAFE, now, remedy))
    with listener:
        return finding("port", why, (Level.OK, f"{address_of(listener)} is free", ""))


def _is_harmonium(url: str) -> bool:
    """Whether a harmonium answers there: `GET /` says so to everybody."""
    asked = RemoteService(Profile(url, None, None), ClientBounds(ANSWER_SECONDS, MAX_ANSWER_BYTES))
    try:
        return asked.call("GET", "/").get("name") == "harmonium"
    except ClientError:
        return False


_LOCAL = {
    "vllm-local": ("vllm", "vllm", "vLLM in this process"),
    "llama-local": ("xllamacpp", "llama", "llama.cpp beside this process"),
}
"""The engines on this machine: the package that each needs, the extra that brings it, and its description."""


def _engine(settings: Settings) -> Finding:
    """Whether there is something that samples."""
    why = "without it no response can be made"
    if settings.engines:
        return finding("engine", why, asyncio.run(_worst_verdict(settings)))
    if settings.engine == "demo":
        now = "demo, which is no real model"
        if beside := vllm_beside(settings):
            now += f", beside a vLLM server at {beside}"
            return finding("engine", why, (Level.WARN, now, f"set {variable('engine')}=vllm to serve that"))
        return finding("engine", why, (Level.OK, now, ""))
    if settings.engine in _LOCAL:
        package, extra, now = _LOCAL[settings.engine]
        there = find_spec(package) is not None
        now += "" if there else ", which is not installed"
        return finding("engine", why, (Level.OK if there else Level.UNSAFE, now, f"pip install 'harmonium[{extra}]'"))
    return finding("engine", why, asyncio.run(_servers(open_engine(settings))))


async def _worst_verdict(settings: Settings) -> Verdict:
    """The verdict on the servers of all engines: the worst level, with each one's words."""
    found = [await _servers(member.engine) for member in open_engines(settings).members]
    worst = max((level for level, _, _ in found), key=list(Level).index)
    said = "; ".join(
        f"{each.listed.name}: {now}" for each, (_, now, _) in zip(settings.listed_engines, found, strict=True)
    )
    return worst, said, f"start what is down, or correct {settings.engines}"


async def _servers(engine: Engine) -> Verdict:
    """The verdict on the servers of an engine."""
    logging.getLogger("service").addHandler(logging.NullHandler())  # what they say is told by what is found
    remedy = "start it, or correct HARMONIUM_ENGINE_URL; while it loads its model, its log says how far it is"
    try:
        await engine.start()
        try:
            await engine.check()
        except EngineUnavailable as error:
            if "does not serve the model" in str(error):
                remedy = "set HARMONIUM_MODEL to an id that GET /v1/models of the server lists, or leave it empty"
            elif "HARMONIUM_ENGINE_API_KEY" in str(error):
                remedy = "set HARMONIUM_ENGINE_API_KEY to the key of the server"
            return Level.UNSAFE, f"{', '.join(engine.servers())}: {error}", remedy
        down = [name for name, up in engine.servers().items() if not up]
        if down:
            return Level.WARN, f"{len(down)} of {len(engine.servers())} servers down: {', '.join(down)}", remedy
        now = f"{engine.model.id} on {', '.join(engine.servers())}"
        releases: Mapping[str, str] = engine.releases() if isinstance(engine, Released) else {}
        if advice := sorted({each for each in releases.values() if each}):
            return Level.WARN, "; ".join((now, *advice)), OLD_REMEDY
        if releases and engine.model.speech is None:
            now += f"; {UNTOLD}"
        return Level.OK, now, ""
    finally:
        await engine.close()


def _sandbox(settings: Settings) -> Finding:
    """Whether Python that a model writes can be run, where that is wanted."""
    why = "Python that a model writes runs there, and nowhere else"
    sandbox = sandbox_of(settings)
    if sandbox is None:
        return finding("sandbox", why, (Level.OK, "none: no Python is run", ""))
    try:
        asyncio.run(_try_sandbox(sandbox))
    except Unusable as error:
        return finding("sandbox", why, (Level.WARN, f"{settings.sandbox}: {error}", SANDBOX_REMEDY))
    return finding("sandbox", why, (Level.OK, f"{settings.sandbox}: sessions are confined", ""))


def _webhooks(settings: Settings) -> Finding:
    """Whether the receiver of webhooks can be reached. The URL is not shown: it may hold a secret."""
    why = "it is told of each background response that has ended"
    if not settings.webhook_url:
        return finding("webhooks", why, (Level.OK, "none: nobody is told", ""))
    from service.features.webhooks.deliver import NotAccepted, Receiver  # for who has a receiver

    remedy = "correct HARMONIUM_WEBHOOK_URL, or start what should listen there"
    try:
        asyncio.run(Receiver(settings).reach())
    except NotAccepted as error:
        return finding("webhooks", why, (Level.WARN, f"the receiver: {error}", remedy))
    return finding("webhooks", why, (Level.OK, "the receiver can be reached", ""))


def _response(running: RemoteService) -> Finding:
    """Whether a running service makes a response, keeps it, goes on from it and deletes it."""
    why = "it is what every client asks for"
    steps = one_response(running)
    now = ", ".join(f"{step.done} in {step.seconds:.3f} s" for step in steps if not step.error)
    failed = [f"not {step.done}: {step.error}" for step in steps if step.error]
    if failed:
        remedy = "read what the service logged about it; HARMONIUM_CLIENT_KEY is the key that was used"
        return finding("one response", why, (Level.UNSAFE, "; ".join([*failed, now] if now else failed), remedy))
    return finding("one response", why, (Level.OK, now, ""))


class Step(NamedTuple):
    """A step: its name, how long it took, and why it failed, '' if it did not."""

    done: str
    seconds: float
    error: str = ""


def one_response(service: RemoteService) -> list[Step]:
    """The steps up to one that fails. The response is deleted all the same."""
    steps: list[Step] = []

    def attempt(done: str, step: Callable[[], Json]) -> Json | None:
        began = monotonic()
        try:
            found = step()
            if found.get("status") == "failed":
                error: Json = found.get("error") or {}
                raise ClientError(f"it failed: {error.get('message')}")
        except ClientError as refusal:
            steps.append(Step(done, monotonic() - began, str(refusal)))
            return None
        steps.append(Step(done, monotonic() - began))
        return found

    def ask(words: str, before: str | None = None) -> Json:
        body: Json = {"model": service.first_model(), "input": words, "max_output_tokens": TOKENS, "metadata": METADATA}
        return service.call("POST", "/v1/responses", body | {"previous_response_id": before})

    made = attempt("made", lambda: ask("Count to 2."))
    if made is None:
        return steps
    id = str(made["id"])
    path = f"/v1/responses/{id}"
    if attempt("retrieved", lambda: service.call("GET", path)):
        attempt("continued", lambda: ask("Count to 3.", id))
    attempt("deleted", lambda: service.call("DELETE", path, None, tree="true"))
    return steps


def _archive(settings: Settings) -> Finding:
    """Whether there is an archive, and its store keeps what it promises."""
    why, settled = "what leaves memory is kept there", with_archive(settings)
    if settled.archive_url == SQLITE and not (settings.data_dir / ARCHIVE).exists() and not settings.redis_url:
        return finding("archive", why, (Level.OK, "sqlite: `serve` makes it in the data folder", ""))
    try:
        warnings = asyncio.run(_probe_archive(settled))
        backlog = () if warnings is None else _backlog(settled)
    except (StoreError, ValueError) as error:
        return finding("archive", why, (Level.UNSAFE, str(error), ARCHIVE_REMEDY))
    if warnings is None:
        return finding("archive", why, (Level.WARN, "none: what leaves memory is deleted for good", UNNAMED_REMEDY))
    if warnings:
        return finding("archive", why, (Level.WARN, "; ".join(warnings), ARCHIVE_REMEDY))
    count, seconds = sum(each.trees for each in backlog), max((each.oldest_seconds for each in backlog), default=0.0)
    waits = "nothing waits" if not count else "1 tree waits," if count == 1 else f"{count:,} trees wait, the first"
    now = f"{settled.archive_kind}: its store is fit for it; {waits}{f' for {seconds:,.0f} s' if count else ''}"
    late = seconds > settled.archive_after_seconds + BACKLOG_SECONDS
    return finding("archive", why, (Level.WARN if late else Level.OK, now, BACKLOG_REMEDY))


async def _probe_archive(settings: Settings) -> Sequence[str] | None:
    """An archive's warnings for its operator; None where there is no archive. Raises ArchiveUnavailable, ArchiveUnfit,
    Unsupported, ValueError.
    """
    archive = open_archive(settings)
    if archive is None:
        return None
    try:
        return await archive.probe()
    finally:
        await archive.close()


def _backlog(settings: Settings) -> Sequence[Waiting]:
    """The backlog of each shard; none of a store that is away, which has a finding of its own. Raises ArchiveForeign
    where the archive isn't the store's, and ArchiveRefused where its disk is full.
    """

    async def look(store: ConversationHistoryStore, archive: Archive | None) -> Sequence[Waiting]:
        await ownership.check(store.server, store.keyspace, archive)
        if await is_full(store.server, store.keyspace):
            raise ArchiveRefused("its disk is full, so nothing is archived; make room on it")
        return await waiting(store.server, store.keyspace)

    with suppress(StoreUnavailable, OSError):
        return on_store(settings, look)
    return ()


def on_store(settings: Settings, work: Callable[[ConversationHistoryStore, Archive | None], Awaitable[T]]) -> T:
    """Do something with the settings' Redis and archive. Raises StoreError, OSError, and ValueError for a URL that
    names no archive.
    """

    async def do(url: str) -> T:
        reached = with_archive(settings).model_copy(update={"redis_url": url})
        archive, store = open_archive(reached), open_store(reached)
        try:
            return await work(store, archive)
        finally:
            await store.close()
            if archive is not None:
                await archive.close()

    with server_url(settings) as url:
        return asyncio.run(do(url))


def with_archive(settings: Settings) -> Settings:
    """The settings with the archive that the service has with them: with the embedded server it has one by itself."""
    return settings.model_copy(update={"archive_url": settings.archive_url or ("" if settings.redis_url else SQLITE)})


async def _try_sandbox(sandbox: Sandbox) -> None:
    """Raises Unusable."""
    try:
        await sandbox.start()
    finally:
        await sandbox.aclose()


async def _examine(url: str, settings: Settings) -> Examined:
    """The report of the Redis. Limits don't count where nobody else can have others."""
    limits = settings.store_limits if settings.redis_url and not settings.change_limits else None
    return await examine(url, settings.key_prefix, settings.shards, settings.store_timeout_seconds, limits)


def expected_of(settings: Settings) -> Expected:
    """The settings' expectations of the Redis."""
    if not settings.redis_url:
        disk = free_bytes(settings.data_dir) if settings.data_dir.exists() else None
        return Expected(
            AddressKind.SINGLE,
            settings.shards,
            settings.max_bytes,
            log_bytes=settings.max_log_bytes,
            embedded=True,
            local=True,
            disk_bytes=disk,
        )
    found = address.parse(settings.redis_url)
    parts = [urlsplit(url) for url in found.urls]
    return Expected(
        found.kind,
        settings.shards,
        settings.max_bytes,
        log_bytes=settings.max_log_bytes,
        local=all(part.scheme == "unix" or is_loopback(part.hostname or "localhost") for part in parts),
        replicas=settings.store_replicas,
        password=bool(parts[0].password or "password" in parse_qs(parts[0].query)),
    )


@contextmanager
def server_url(settings: Settings) -> Generator[str]:
    """The Redis that is set; else the embedded server that another process runs, or one of our own meanwhile."""
    if settings.redis_url:
        yield settings.redis_url
        return
    server = EmbeddedServer(settings.data_dir)
    try:
        server.start()
    except DataFolderBusy:
        yield socket_of(settings.data_dir)
        return
    try:
        yield server.url
    finally:
        server.stop()
