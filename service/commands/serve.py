"""Serving: the port, the embedded store, the processes, and how they stop.

One process runs the application itself; with more, a supervisor shares its listening socket among workers and
replaces one that dies. On SIGTERM or SIGINT no new connection is taken, open streams have `shutdown_seconds`
to finish, and only then does the embedded server stop. Nothing here may know a route or a request.
"""

import asyncio
import errno
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from functools import partial
from multiprocessing import parent_process
from types import FrameType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from service import logs
from service.commands.options import EXIT_UNABLE, fail
from service.commands.signals import (
    HURRY,
    OpenApplication,
    die_with_parent,
    exit_on_signals,
    spared_of_interrupts,
    watching_loop,
)
from service.engine.port import EngineUnavailable
from service.engine.vllm.servers import UNTOLD, read_release
from service.metrics.processes import take_number
from service.metrics.scrape import read_shards
from service.process import also_spoken, check_engines, features, lacks, open_jobs, open_layout, open_store
from service.settings.core import CoreSettings, counting_together
from service.settings.engines import DEMO, ENGINE_URLS, no_name_of_demo
from service.settings.group import display
from service.settings.keys import Keys, warn_of_short
from service.settings.sources import SettingsError, env_file, service_links, variable
from service.web.dialect import OPENAI
from service.web.http_protocol import LINGER_BYTES, BoundedHttpProtocol, ConnectionLimits
from service.web.stopping import HANG_UP, STOP_SIGNALS, StartTerminal
from store.errors import (
    ArchiveUnavailable,
    LayoutMismatch,
    StoreError,
    StoreUnavailable,
    Unsupported,
)
from store.redis.connection import connect

if TYPE_CHECKING:  # a service without a terminal has no use for it
    from rich.console import Console

BACKLOG = 2048
"""Connections that wait in the kernel while a process is busy, as far as its own limit permits."""

KEEP_ALIVE_SECONDS = 65
"""How long an idle connection is kept: longer than the pools of clients and proxies (5 to 60 s) keep it, so
that they are the ones to close it and no request meets a connection that is just being closed."""

PING_SECONDS = 20.0
"""How often a WebSocket is pinged, and how long its client may take to answer."""

HEALTH_SECONDS = 15
"""How long a worker may leave its supervisor's ping without an answer before it is replaced."""

READY_SECONDS = 5
"""How long a start waits for what `/ready` says."""

BESIDE = ENGINE_URLS["vllm"]
"""The address of a vLLM server on this machine in all documents. It is loopback, and nothing is asked elsewhere."""

LOOK_SECONDS = 1
"""How long a start looks for a server there: where nobody listens, that is known at once."""

MAX_ANSWER_BYTES = 1 << 16
"""The most that is read of either answer."""

STOP_GRACE_SECONDS = 5
"""The least time for a worker beyond `shutdown_seconds`, for its last writes, before it is killed."""

CreateApp = Callable[[CoreSettings], Any]
"""Makes the ASGI application. It is pickled for workers, so it has to be a function of a module."""

Ready = Callable[[], Coroutine[None, None, None]]
"""Says that the service answers."""

logger = logging.getLogger(__name__)


class StartError(Exception):
    """The port, the data folder or the store can't be used. The message says why, and what to do."""


@contextmanager
def starting() -> Generator[None]:
    """A process that can't start says why."""
    try:
        yield
    except SettingsError as error:
        fail(str(error), EXIT_UNABLE)
    except (StartError, LayoutMismatch, Unsupported) as error:
        fail(str(error))


def run(settings: CoreSettings, create_app: CreateApp) -> None:
    """Serve until a signal says stop. Has to be called from the main thread.

    Raises StartError, and LayoutMismatch where the store is not to be used with these settings. SystemExit has status 0
    after a signal and 3 if the application could not start.
    """
    exit_on_signals(rereads=settings.rereads)
    require_engines(settings)
    beside = vllm_beside(settings)
    if beside:
        settings = _strip_names_of_models(settings)
    allow_files(settings.max_connections)
    with listen(settings.host, settings.port) as listener, redis_for(settings) as served:
        close_logs = configure_logs(settings)  # after the store: it starts a thread
        try:
            warnings = join(served, alone=not settings.redis_url)
            url, terminal = address_of(listener), terminal_of(settings)
            stored = asyncio.run(_stored_responses(served)) if terminal else None
            _announce(settings, url, terminal, beside)
            told = (settings, url, terminal, stored, beside, warnings)
            config, ready = _config(served, create_app), partial(_tell_ready, *told)
            if settings.workers == 1:
                ApiServer(config, ready).run(sockets=[listener])
            else:
                with counting_together():
                    Supervisor(config, [listener], ready).run()
        finally:
            close_logs()


def require_engines(settings: CoreSettings) -> None:
    """Raises SettingsError where this installation lacks an engine that the settings name."""
    try:
        check_engines(settings)
    except EngineUnavailable as error:
        also = lacks() and f", and {lacks()}"
        raise SettingsError(f"{error}{also}; {variable('engine')} and {variable('engines')} name engines") from error


def vllm_beside(settings: CoreSettings) -> str:
    """The URL of the vLLM server on this machine whose names the demo engine would take; empty where there is none.

    Such a server tells its release to everybody. One that still loads its model doesn't listen yet, and isn't seen.
    """
    if settings.stands_in and read_release(asyncio.run(_fetch(BESIDE, "/version", LOOK_SECONDS))) is not UNTOLD:
        return BESIDE
    return ""


def _strip_names_of_models(settings: CoreSettings) -> CoreSettings:
    """The settings with the demo engine named in them, which then has no name of a model."""
    aliases = tuple(each for each in settings.model_aliases if not no_name_of_demo(each))
    return settings.model_copy(update={"engine": DEMO, "model_aliases": aliases})


def join(settings: CoreSettings, *, alone: bool = False) -> Sequence[str]:
    """Agree with the layout record of the store; the warnings. `alone`: nobody else uses it, so its limits change with
    ours.

    A store that doesn't answer keeps nobody from starting: `/ready` says so then, and every sweep asks the record
    again. Raises LayoutMismatch where this process must not use the store, and Unsupported where that, or what a
    feature leans on, can't do what is asked.
    """
    return asyncio.run(_join(settings, alone=alone))


async def _join(settings: CoreSettings, *, alone: bool) -> Sequence[str]:
    store, warnings = open_store(settings), list[str]()
    try:
        await open_layout(settings, store, alone=alone).agree()
        for feature in features():
            warnings += await feature.join(settings, store, alone=alone)
        await store.confirmer.require(store.keyspace.all_shards())
    except (StoreUnavailable, ArchiveUnavailable):
        pass
    finally:
        await store.close()
    return warnings


async def _stored_responses(settings: CoreSettings) -> int | None:
    """How many responses the settings' store has; None where it doesn't say."""
    store = open_store(settings)
    try:
        shards = await read_shards(open_jobs(settings, store))
        return sum(shard.responses for shard in shards.values())
    except StoreError:
        return None
    finally:
        await store.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on `host` and `port`. Raises StartError.

    It listens at once, not when the application is ready: two processes can bind one port, but only one can
    listen.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise StartError(_advice(host, port, error)) from error


def allow_files(connections: int) -> None:
    """Raise this process's limit of open files, often 1,024 by default, to what so many connections need, and as much
    again for the store, the engine and the rest.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * connections
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class ApiServer(uvicorn.Server):
    """uvicorn's server, which also stops when it has not started yet: an engine may take minutes to load its model."""

    _starting: "asyncio.Task[None] | None" = None

    def __init__(self, config: uvicorn.Config, ready: Ready) -> None:
        """`ready` is called once it answers."""
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, until a signal says stop."""
        self._starting = asyncio.current_task()
        try:
            await super().startup(sockets)
        except asyncio.CancelledError:
            if not self.should_exit:
                raise
        finally:
            self._starting = None
        if self.started:
            await self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let what is open finish, and say so."""
        _tell_stopping(cast(Config, self.config).settings)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop: what uvicorn has for a signal. A second Ctrl-C cuts off what is open, and the rest ends as always."""
        if self.should_exit and sig == signal.SIGINT:
            signal.raise_signal(HURRY)
            return
        super().handle_exit(sig, frame)
        if self._starting is not None:
            self._starting.get_loop().call_soon_threadsafe(self._starting.cancel)


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which also closes the port at once, and kills a worker that doesn't stop."""

    def __init__(self, config: "Config", sockets: list[socket.socket], ready: Ready) -> None:
        """`ready` is called once all workers answer."""
        super().__init__(config, sockets)
        self._ready = ready
        self._told = self._stopping = False
        self._keys, self._terminal = Keys(config.settings), StartTerminal()
        for each in STOP_SIGNALS:
            signal.signal(each, self._stop)
        signal.signal(HANG_UP, self._hang_up)

    def run(self) -> None:
        """Keep the workers alive until a signal; exits with status 3 if one of them could not start."""
        super().run()
        if any(process.exitcode == STARTUP_FAILURE for process in self.processes):
            sys.exit(STARTUP_FAILURE)

    def init_processes(self) -> None:
        """Start the workers."""
        for number in range(self.processes_num):
            self.processes.append(self._start_worker(number))

    def _start_worker(self, number: int) -> Process:
        """A worker that was started, which counts under this number."""
        cast(Config, self.config).number = number
        process = Process(self.config, self.sockets)
        with spared_of_interrupts():
            process.start()
        return process

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died. With our end of its pipe closed, a ping isn't waited for when one dies."""
        if self._stopping:
            return
        for number, process in enumerate(self.processes):
            process.child_conn.close()
            if process.is_alive(timeout=HEALTH_SECONDS) or self._stopping:
                continue
            process.kill()
            process.join()
            if process.exitcode == STARTUP_FAILURE:  # the next one would fail, too
                self.should_exit.set()
                return
            if not self._stopping:
                self.processes[number] = self._start_worker(number)
        if not self._stopping and not self._told and all(process.is_ready() for process in self.processes):
            self._told = True
            asyncio.run(self._ready())

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Have the workers stop at once, also while one is waited for. A second Ctrl-C cuts off what they have open."""
        hurry, self._stopping = self._stopping and number == signal.SIGINT, True
        self.signal_queue.append(number)
        for process in self.processes:
            if process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, HURRY if hurry else signal.SIGTERM)

    def _hang_up(self, number: int, frame: FrameType | None) -> None:
        """Have keys and engines read again, where they are in files; a terminal that was closed asks for a stop."""
        if self._keys.rereads and not self._terminal.gone:
            self.signal_queue.append(number)
        else:
            self._stop(signal.SIGTERM, frame)

    def handle_hup(self) -> None:
        """Read the files again, say so, and have all workers do the same; if nothing is wrong, those to come, too."""
        if self._stopping:
            return
        if self._keys.read_again():
            cast(Config, self.config).renew(CoreSettings.of(self._keys.settings))
        for process in self.processes:
            if process.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(process.pid, HANG_UP)

    def terminate_all(self) -> None:
        """Ask the workers to stop, and close the port: else the kernel would go on accepting."""
        if self._told:
            _tell_stopping(cast(Config, self.config).settings)
        for listener in self.sockets:
            listener.close()
        super().terminate_all()

    def join_all(self) -> None:
        """Wait for the workers; one that takes too long is killed."""
        settings = cast(Config, self.config).settings
        grace = max(STOP_GRACE_SECONDS, 3 * settings.store_timeout_seconds)
        deadline = time.monotonic() + settings.shutdown_seconds + grace
        for process in self.processes:
            process.process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                logs.event(logger, logging.ERROR, "worker killed: it did not stop in time", pid=process.pid)
                process.process.kill()
                process.process.join()


class Config(uvicorn.Config):
    """uvicorn's configuration, pickled to each worker with the settings that the supervisor read."""

    number = 0
    """The number of the worker that it is pickled for."""

    def __init__(self, settings: CoreSettings, create_app: CreateApp, **options: Any) -> None:
        self._create_app = create_app
        self.socket_paths = socket_paths()
        self.connection_limits = ConnectionLimits(
            connections=settings.max_connections,
            send_seconds=settings.send_seconds,
            linger_bytes=max(LINGER_BYTES, 2 * settings.max_body_bytes),
        )
        super().__init__(self.renew(settings), factory=True, **options)

    def renew(self, settings: CoreSettings) -> Callable[[], ASGIApp]:
        """Have workers that are started from now on serve with these settings; what makes their application."""
        self.settings = settings
        self.app = partial(_watched_app, self._create_app, settings)
        return self.app

    def configure_logging(self) -> None:
        """Set up a worker process: uvicorn calls this first in it."""
        super().configure_logging()
        if parent_process() is not None:
            die_with_parent()
            exit_on_signals()
            configure_logs(self.settings)
            take_number(self.number)


def _watched_app(create_app: CreateApp, settings: CoreSettings) -> ASGIApp:
    """The application, which once it has started ends its process where the loop stands still, and can be hurried."""
    app: ASGIApp = create_app(settings)
    requests = OpenApplication(app)

    async def watched_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await requests(scope, receive, send)
            return
        async with AsyncExitStack() as resources:

            async def started(message: Message) -> None:
                if message["type"] == "lifespan.startup.complete":
                    await resources.enter_async_context(watching_loop(settings))
                    resources.enter_context(requests.hurrying())
                await send(message)

            await app(scope, receive, started)

    return watched_app


@contextmanager
def redis_for(settings: CoreSettings) -> Generator[CoreSettings]:
    """The settings with a Redis in them: the one that is set, or one of our own, which runs until the block's end.

    Raises StartError.
    """
    if settings.redis_url:
        check_url(settings.redis_url)
        yield settings
        return
    with own_redis(settings, serves=True) as url:
        beside = {name: value for each in features() for name, value in each.beside_embedded(settings).items()}
        yield settings.model_copy(update={"redis_url": url, **beside})


def own_redis(settings: CoreSettings, *, serves: bool = False, makes: bool = False) -> AbstractContextManager[str]:
    """The URL of the server of the data folder, until the block's end. Where this process `serves` it has to be its
    own; else that of another process will do. It `makes` a store, as one who serves does. Raises StartError.
    """
    known = (feature.own_redis(settings, serves=serves, makes=makes) for feature in features())
    found = [each for each in known if each is not None]
    if not found:
        raise StartError(f"this installation has no embedded server; set {variable('redis_url')}")
    return found[0]


def socket_protocol() -> Any:
    """The protocol of WebSockets; none are opened where no feature has one."""
    found: list[Any] = [protocol for each in features() if (protocol := each.socket_protocol())]
    return found[0] if found else "none"


def socket_paths() -> frozenset[str]:
    """The paths at which WebSockets are opened."""
    return frozenset(f"{dialect.prefix}/responses" for dialect in (OPENAI, *also_spoken()))


def check_url(url: str) -> None:
    """Raises StartError for a URL that no connection can be made from. It may hold a password, so it isn't shown."""
    try:
        connect(url)
    except (TypeError, ValueError) as error:
        raise StartError(f"{variable('redis_url')} can't be used; check its database number and its options") from error


def _config(settings: CoreSettings, create_app: CreateApp) -> Config:
    return Config(
        settings,
        create_app,
        http=BoundedHttpProtocol,
        ws=socket_protocol(),
        ws_max_size=settings.max_body_bytes,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PING_SECONDS,
        ws_per_message_deflate=False,
        loop="uvloop",
        lifespan="on",
        workers=settings.workers,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=settings.shutdown_seconds,
        timeout_worker_healthcheck=HEALTH_SECONDS,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )


def address_of(listener: socket.socket) -> str:
    """The URL at which this machine reaches a listener."""
    return url_of(str(listener.getsockname()[0]), listener.getsockname()[1])


def url_of(host: str, port: int) -> str:
    """The URL at which this machine reaches a server on that host and port."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announce(settings: CoreSettings, url: str, terminal: "Console | None", beside: str) -> None:
    """Say where the service will be, what it serves and keeps, and who can reach it; a terminal gets that as a card."""
    if terminal is None:
        logs.event(
            logger,
            logging.INFO,
            "listening",
            url=url,
            engine=settings.engines or settings.engine,
            model=settings.model or None,
            store=str(display(settings)["redis_url"] or settings.data_dir),
            workers=settings.workers,
            env_file=str(env_file() or "") or None,
        )
        if not settings.has_keys:
            message = "no API keys: only this machine can connect, and only with a Host header that names localhost"
            logs.event(logger, logging.INFO, message, remedy=f"set {variable('api_keys')}")
        if beside:
            message = "a vLLM server runs on this machine, but the demo engine answers"
            logs.event(
                logger, logging.WARNING, message, url=beside, remedy=f"set {variable('engine')}=vllm to serve it"
            )
    tell_service_links()
    warn_of_short(settings)


async def _tell_ready(
    settings: CoreSettings,
    url: str,
    terminal: "Console | None",
    stored: int | None,
    beside: str,
    warnings: Sequence[str],
) -> None:
    """Say that it answers, and what it can't serve without where that is away."""
    found = await _readiness(url)
    away = ", ".join(f"{name} is {found[name]}" for name in ("store", "engine") if found.get(name, "ok") != "ok")
    if found.get("status") != "ok":
        away = away or ("/ready says why" if found else f"/ready hasn't answered in {READY_SECONDS} s")
    if terminal is not None:
        from service.commands.terminal import card

        with suppress(OSError):  # it may be closed by now
            terminal.print(card(settings, url, stored, env_file(), away, beside, warnings), soft_wrap=True)
    elif away:
        logs.event(logger, logging.WARNING, "serving, but not ready", url=url, reason=away)
    else:
        logs.event(logger, logging.INFO, "ready", url=url)


async def _readiness(url: str) -> Mapping[str, object]:
    """The answer of `/ready`, as a supervisor knows no more than others; empty where there is none in time."""
    with suppress(ValueError):
        return json.loads(await _fetch(url, "/ready", READY_SECONDS))
    return {}


async def _fetch(url: str, path: str, seconds: float) -> bytes:
    """The body of the answer to a GET, whatever its status; empty where there is none in time, or it is too long."""
    parts, answer = urlsplit(url), bytearray()
    with suppress(OSError):
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write(f"GET {path} HTTP/1.1\r\nhost: {parts.netloc}\r\nconnection: close\r\n\r\n".encode())
                while part := await reader.read(MAX_ANSWER_BYTES):
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        return b""
                return bytes(answer).partition(b"\r\n\r\n")[2]
            finally:
                writer.close()
    return b""


def _tell_stopping(settings: CoreSettings) -> None:
    """Say that it stops, and what may take a while. Never call it in the handler of a signal, which may not log."""
    remedy = "Ctrl-C again closes all connections at once"
    logs.event(logger, logging.INFO, "stopping", limit_seconds=settings.shutdown_seconds, remedy=remedy)


def configure_logs(settings: CoreSettings) -> Callable[[], None]:
    """Log as the settings say, and to a terminal as a person reads; what it returns ends that."""
    terminal = terminal_of(settings)
    if terminal is None:
        return logs.configure(settings.log_level, settings.log_format)
    from service.commands.terminal import TerminalFormatter

    return logs.configure(settings.log_level, TerminalFormatter(terminal))


def terminal_of(settings: CoreSettings) -> "Console | None":
    """The terminal that stderr is, if a person is to read it there."""
    if settings.log_format != "text" or not sys.stderr.isatty():
        return None
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def tell_service_links() -> None:
    """Say which settings Kubernetes has written over, if it has: they are as if they weren't set."""
    known = {variable(name) for name in CoreSettings.model_fields}
    if names := ", ".join(name for name in service_links() if name in known):
        message = "ignored variables: Kubernetes set them as addresses of Services"
        logs.event(logger, logging.INFO, message, variables=names)


def _advice(host: str, port: int, error: OSError) -> str:
    """The fault of an address, and its remedy."""
    if isinstance(error, socket.gaierror):
        return f"{variable('host')}={host} is no address or name that this machine knows"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken by another program; stop it, or choose another port with --port"
    if error.errno == errno.EADDRNOTAVAIL:
        return f"{variable('host')}={host} is not an address of this machine; 0.0.0.0 listens on all it has"
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges that this user lacks; choose one above 1023 with --port"
    return f"can't listen on {host} port {port}: {error.strerror}"
