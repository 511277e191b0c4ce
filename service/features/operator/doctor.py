"""`harmonium doctor`: asks the Redis of the settings about itself, and looks at all else that `serve` needs: port,
keys, engine, data folder and disk. It shows what keeps it from serving, and what could lose or expose conversations.

store/doctor/doctor.py has the checks of a Redis; the others are here. An embedded server is asked while it runs, or
else started for the check. Never change a setting here.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, replace
from importlib.util import find_spec
from time import monotonic
from typing import Annotated, TypeVar

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from service.commands.arguments import EXIT_FAILED, flag, many, option
from service.commands.options import STORE_OPTIONS, AsJson, asking, fail, show, with_settings
from service.commands.serve import StartError, address_of, listen, url_of, vllm_beside
from service.commands.stores import server_url
from service.engine.port import Engine, EngineUnavailable, Released
from service.features.archive.opening import lists_alone, on_both, open_archive, with_archive
from service.features.archive.settings import SQLITE, ArchiveSettings
from service.features.client.errors import ClientError
from service.features.client.options import PANEL, SERVICE, service_of
from service.features.client.profile import Profile
from service.features.client.service import ClientBounds, Json, RemoteService
from service.features.operator.at_start import expected_of
from service.features.operator.gpu import examine_gpu
from service.features.sandbox.choose import sandbox_of
from service.features.sandbox.port import Unusable
from service.features.sandbox.settings import SandboxSettings
from service.features.webhooks.settings import WebhookSettings
from service.process import open_engine, open_engines
from service.settings.core import LEAST_KEY_CHARS, CoreSettings
from service.settings.group import display, with_extra
from service.settings.keys import with_short_keys
from service.settings.sources import variable
from store.archive.archive import Archive
from store.backup import ownership
from store.backup.archiving.shards import Waiting, is_full, waiting
from store.doctor.doctor import Finding, Level, Verdict, finding, judge, unreachable, worst_first
from store.doctor.examine import examine
from store.embedded import ARCHIVE
from store.errors import ArchiveRefused, NoStore, StoreError, StoreUnavailable
from store.history.history import ConversationHistoryStore

COLORS = {Level.OK: "green", Level.WARN: "yellow", Level.UNSAFE: "bold red"}

ANSWER_SECONDS = 2.0
"""How long the program at the port may take to say what it is."""

MAX_ANSWER_BYTES = 1 << 16

ARCHIVE_REMEDY = "docs/archive.md explains each requirement and warning"
BACKLOG_SECONDS = 600.0
"""How much longer than HARMONIUM_ARCHIVE_AFTER_SECONDS a tree may wait to be archived."""

T = TypeVar("T")

_URL = "A running service, for a test response. Default: none, or the one of --profile or --key-env."


@with_settings("host", "port", "engine", "engine_url", "local_model", "model", *STORE_OPTIONS)
def doctor(
    settings: CoreSettings,
    url: Annotated[str | None, option("--url", "URL", _URL, panel=PANEL)] = None,
    profile: Annotated[str | None, SERVICE["profile"]] = None,
    key_env: Annotated[str | None, SERVICE["key_env"]] = None,
    gpu: Annotated[
        bool, flag("--gpu", "Check that vLLM's image can run on this machine: driver, memory, disk.")
    ] = False,
    as_json: AsJson = False,
    everything: Annotated[bool, flag("--all", "Also show the rows that are ok, as --url and --gpu do.")] = False,
) -> int:
    """Check everything that `serve` needs, and every setting that could cost you conversations.

    Every row says what was found, why it matters and what to do. `unsafe`: conversations can be lost or shown to
    others, or no response can be made, because of a policy that evicts keys, nothing on disk, a replica, no password,
    an engine that doesn't answer or a port in use. `warn`: look at it. The exit status is 1 if any row is unsafe.
    Nothing is changed.

    It checks what `serve` would use with the same settings: the Redis, the primary behind Sentinels, or every primary
    of a cluster; the port, the API keys, the engine. It asks a running embedded server, or starts one for a moment in
    its data folder. With --url it also makes, retrieves, continues and deletes a response there; --profile and
    --key-env name a service and its key as for `ask`.
    """
    asked = any(each is not None for each in (url, profile, key_env))
    with asking("can't check", EXIT_FAILED):
        try:
            found = diagnose(settings, service_of(url, profile, key_env) if asked else None, gpu=gpu)
        except ClientError as error:
            fail(f"can't check: {error}", error.exit_status)
    safe = all(each.level is not Level.UNSAFE for each in found)
    redis = str(display(settings)["redis_url"] or f"embedded in {settings.data_dir}")
    if as_json:
        show({"safe": safe, "redis": redis, "findings": [asdict(each) for each in found]}, (), as_json=True)
    else:
        _print(redis, found, Console(), everything=everything or gpu or asked)
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
    console.print("docs/troubleshooting.md lists symptoms and remedies (http://ADDRESS/docs/troubleshooting.md)")


def diagnose(settings: CoreSettings, running: RemoteService | None = None, *, gpu: bool = False) -> list[Finding]:
    """The findings on the settings: their Redis, and what else `serve` needs; on a service that is `running`; and on
    the machine as one for a `gpu`.

    Raises OSError, ValueError and TypeError where that Redis can't even be asked.
    """
    found = [finding(what, why, check(settings)) for what, why, check in CHECKS]
    found += _redis(settings)
    if running is not None:
        found.append(finding("one response", "clients need it", one_response(running)))
    if gpu:
        found += examine_gpu()
    return worst_first(found)


def _redis(settings: CoreSettings) -> list[Finding]:
    """The findings on the settings' Redis, or on its data folder."""
    why = "conversations are kept in it"
    limits = settings.store_limits if settings.redis_url and not settings.change_limits else None  # else they are ours
    terms = settings.redis_prefix, settings.shards, settings.store_timeout_seconds, limits
    try:
        with server_url(settings, makes=True) as url:
            examined = asyncio.run(examine(url, *terms))
    except (NoStore, StoreUnavailable, OSError) as error:
        if not settings.redis_url:
            now = f"{settings.data_dir}: {error.strerror}" if isinstance(error, OSError) else str(error)
            remedy = "make this user its only owner, or set HARMONIUM_DATA_DIR to another folder"
            return [finding("data folder", why, (Level.UNSAFE, now, remedy))]
        if isinstance(error, StoreUnavailable):
            return [unreachable(str(error))]
        raise
    found = judge(expected_of(settings), examined)
    if not settings.redis_url:
        found.append(finding("data folder", why, (Level.OK, str(settings.data_dir), "")))
    return found


def _keys(settings: CoreSettings) -> Verdict:
    """Whether API keys can be guessed. The settings see to it that others can't connect without one."""
    if short := with_short_keys(settings):
        now = f"fewer than {LEAST_KEY_CHARS} characters, of {', '.join(short)}"
        return Level.WARN, now, "openssl rand -hex 32 makes a safe one"
    count = len(settings.api_keys)
    found = list[str]()
    if count:
        found.append(f"{count}, of {many(len(settings.tenants), 'project')}")
    if settings.has_projects:
        found.append("those of projects in the store")
    return Level.OK, ", and ".join(found) or "none: only this machine can connect", ""


def _port(settings: CoreSettings) -> Verdict:
    """Whether `serve` can listen, or does so already."""
    try:
        with listen(settings.host, settings.port) as listener:
            return Level.OK, f"{address_of(listener)} is free", ""
    except StartError as error:
        url = url_of(settings.host, settings.port)
        if _is_harmonium(url):
            return Level.OK, f"harmonium answers at {url}", ""
        now, _, remedy = str(error).partition("; ")
        return Level.UNSAFE, now, remedy


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


def _engine(settings: CoreSettings) -> Verdict:
    """Whether there is something that samples."""
    if settings.engines:
        return asyncio.run(_worst_verdict(settings))
    if settings.engine == "demo":
        now = "demo, not a real model"
        if beside := vllm_beside(settings):
            remedy = f"set {variable('engine')}=vllm to serve that"
            return Level.WARN, f"{now}, beside a vLLM server at {beside}", remedy
        return Level.OK, now, ""
    if settings.engine in _LOCAL:
        package, extra, now = _LOCAL[settings.engine]
        if find_spec(package) is None:
            return Level.UNSAFE, f"{now}, which is not installed", with_extra(extra)
        return Level.OK, now, ""
    return asyncio.run(_servers(open_engine(settings)))


async def _worst_verdict(settings: CoreSettings) -> Verdict:
    """The verdict on the servers of all engines: the worst level, with each one's words."""
    found = [await _servers(member.engine) for member in open_engines(settings).members]
    worst = max((level for level, _, _ in found), key=list(Level).index)
    names = (each.listed.name for each in settings.listed_engines)
    said = "; ".join(f"{name}: {now}" for name, (_, now, _) in zip(names, found, strict=True))
    return worst, said, f"start what is down, or correct {settings.engines}"


async def _servers(engine: Engine) -> Verdict:
    """The verdict on the servers of an engine."""
    logging.getLogger("service").addHandler(logging.NullHandler())  # what they say is told by what is found
    remedy = "start it, or correct HARMONIUM_ENGINE_URL; if it is loading its model, its log shows the progress"
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
            return (
                Level.WARN,
                "; ".join((now, *advice)),
                "docs/deploy.md#versions-of-vllm lists what each version lacks",
            )
        if releases and engine.model.speech is None:
            now += "; gpt-oss needs VLLM_XGRAMMAR_CACHE_MB=0, which servers don't report"
        return Level.OK, now, ""
    finally:
        await engine.close()


def _sandbox(settings: CoreSettings) -> Verdict:
    """Whether Python that a model writes can be run, where that is wanted."""
    place, sandbox = SandboxSettings.of(settings).sandbox, sandbox_of(SandboxSettings.of(settings))
    if sandbox is None:
        return Level.OK, "none: no Python is run", ""

    async def start() -> None:
        async with aclosing(sandbox):
            await sandbox.start()

    try:
        asyncio.run(start())
    except Unusable as error:
        remedy = "docs/tools.md explains each reason and its remedy"
        return Level.WARN, f"{place}: {error}", remedy
    return Level.OK, f"{place}: sessions are confined", ""


def _webhooks(all_settings: CoreSettings) -> Verdict:
    """Whether the receiver of webhooks can be reached. The URL is not shown: it may hold a secret."""
    settings = WebhookSettings.of(all_settings)
    if not settings.webhook_url:
        return Level.OK, "none", ""
    from service.features.webhooks.deliver import NotAccepted, Receiver  # for who has a receiver

    try:
        asyncio.run(Receiver(settings).reach())
    except NotAccepted as error:
        remedy = "correct HARMONIUM_WEBHOOK_URL, or start the server that listens there"
        return Level.WARN, f"the receiver: {error}", remedy
    return Level.OK, "the receiver can be reached", ""


def one_response(service: RemoteService) -> Verdict:
    """Whether a running service makes a response, keeps it, goes on from it, and deletes it whatever came of that."""
    done, failed = list[str](), list[str]()

    def attempt(name: str, step: Callable[[], Json]) -> Json | None:
        began = monotonic()
        try:
            found = step()
        except ClientError as refusal:
            failed.append(f"not {name}: {refusal}")
            return None
        done.append(f"{name} in {monotonic() - began:.3f} s")
        return found

    def ask(words: str, before: str | None = None) -> Json:
        body: Json = {"model": service.first_model(), "input": words, "previous_response_id": before}
        short: Json = {"max_output_tokens": 64, "metadata": {"harmonium": "doctor"}}
        made = service.call("POST", "/v1/responses", body | short)
        if made.get("status") == "failed":
            error: Json = made.get("error") or {}
            raise ClientError(f"it failed: {error.get('message')}")
        return made

    if made := attempt("made", lambda: ask("Count to 2.")):
        id = str(made["id"])
        if attempt("retrieved", lambda: service.call("GET", f"/v1/responses/{id}")):
            attempt("continued", lambda: ask("Count to 3.", id))
        attempt("deleted", lambda: service.call("DELETE", f"/v1/responses/{id}", None, tree="true"))
    remedy = "read the service's log; the key is that of --key-env, --profile or HARMONIUM_CLIENT_KEY"
    said = [*failed, ", ".join(done)] if done else failed
    return Level.UNSAFE if failed else Level.OK, "; ".join(said), remedy


def _archive(settings: CoreSettings) -> Verdict:
    """Whether there is an archive, and its store keeps what it promises."""
    settled = with_archive(settings)
    if settled.archive_url == SQLITE and not (settings.data_dir / ARCHIVE).exists() and not settings.redis_url:
        return Level.OK, "sqlite: `serve` makes it in the data folder", ""
    try:
        warnings = asyncio.run(_probe_archive(settled))
        backlog = () if warnings is None else _backlog(settled)
    except (StoreError, ValueError) as error:
        return Level.UNSAFE, str(error), ARCHIVE_REMEDY
    if warnings is None:
        remedy = (
            "set HARMONIUM_ARCHIVE_URL to an archive that all services of this Redis reach: docs/archive.md lists the "
            "kinds"
        )
        return Level.WARN, "none: turns that leave memory are deleted", remedy
    if warnings:
        return Level.WARN, "; ".join(warnings), ARCHIVE_REMEDY
    if lists_alone(settled):
        remedy = "set HARMONIUM_CATALOGUE_URL to one Postgres for all machines, or for a single machine to sqlite"
        return Level.WARN, f"{settled.archive_kind}: each machine has a separate list of its content", remedy
    count, seconds = sum(each.trees for each in backlog), max((each.oldest_seconds for each in backlog), default=0.0)
    waits = "nothing waits" if not count else "1 tree waits," if count == 1 else f"{count:,} trees wait, the first"
    now = f"{settled.archive_kind}: the probe passed; {waits}{f' for {seconds:,.0f} s' if count else ''}"
    late = seconds > settled.archive_after_seconds + BACKLOG_SECONDS
    remedy = "start a service, which archives; if one runs, its log says why `archiving fails`"
    return Level.WARN if late else Level.OK, now, remedy


CHECKS: tuple[tuple[str, str, Callable[[CoreSettings], Verdict]], ...] = (
    ("API keys", "a key can read all conversations of its project", _keys),
    ("port", "`harmonium serve` listens there", _port),
    ("engine", "without it no response can be made", _engine),
    ("sandbox", "Python that a model writes runs only there", _sandbox),
    ("webhooks", "it gets the end of each background response", _webhooks),
    ("archive", "turns that leave memory are kept there", _archive),
)
"""The checks of the settings: name, reason, and function."""


async def _probe_archive(settings: ArchiveSettings) -> Sequence[str] | None:
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


def _backlog(settings: CoreSettings) -> Sequence[Waiting]:
    """The backlog of each shard; none of a store that is away, which has a finding of its own. Raises ArchiveForeign
    where the archive isn't the store's, and ArchiveRefused where its disk is full.
    """

    async def look(store: ConversationHistoryStore, archive: Archive | None) -> Sequence[Waiting]:
        await ownership.check(store.server, store.keyspace, archive)
        if await is_full(store.server, store.keyspace):
            raise ArchiveRefused("its disk is full, so nothing is archived; make room on it")
        return await waiting(store.server, store.keyspace)

    with suppress(NoStore, StoreUnavailable, OSError):
        return on_both(settings, look)
    return ()
