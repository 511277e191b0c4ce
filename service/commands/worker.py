"""`harmonium worker`: a process that works on background responses and serves no requests but probes.

Jobs wait in Redis, and so do their events. On SIGTERM or SIGINT it claims no more, hands back its jobs, and exits
within `shutdown_seconds`; while its engine still loads it exits at once. After a bug it does the same, with an exit
status that makes its supervisor start it again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial

import uvicorn
import uvloop
from starlette.types import ASGIApp

from service import logs
from service.app import create_probe_app, settle
from service.background.tasks import Background
from service.commands.serve import (
    StartError,
    allow_files,
    check_url,
    configure_logs,
    join,
    listen,
    require_engines,
    tell_service_links,
)
from service.commands.signals import exit_on_signals, watching_loop
from service.engine.port import EngineUnavailable
from service.harmony import tokens
from service.metrics.counters import lag_counted
from service.process import close_service, open_service, reread, start_service
from service.responses.service import Service
from service.settings.core import CoreSettings
from service.settings.sources import variable
from service.web.http_protocol import BoundedHttpProtocol, ConnectionLimits
from service.web.stopping import STOP_SIGNALS, rereading

EXIT_BROKEN = 1

PROBE_SECONDS = 1
"""How long an answer that is under way may delay a worker that exits."""

PROBE_CONNECTIONS = 64
"""The most connections at once to the port that answers probes."""

logger = logging.getLogger(__name__)


class ProbeServer(uvicorn.Server):
    """A server beside the worker, which handles the signals."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none."""
        yield


def inner_server(app: ASGIApp, connections: int, stop_seconds: int) -> ProbeServer:
    """A server of `app` alone, with at most so many connections and so long for a stop."""
    config = uvicorn.Config(
        app,
        http=BoundedHttpProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=stop_seconds,
    )
    config.connection_limits = ConnectionLimits(connections=connections)  # type: ignore[attr-defined]
    return ProbeServer(config)


def run(settings: CoreSettings) -> None:
    """Work until a signal says stop. Has to be called from the main thread.

    Raises StartError, LayoutMismatch where the store is not to be used with these settings, and SystemExit with status
    1 after a bug, which is in the log.
    """
    if not settings.redis_url:
        raise StartError(
            "a worker needs its service's Redis; set "
            f"{variable('redis_url')}, or let `harmonium serve` work on background responses itself"
        )
    check_url(settings.redis_url)
    require_engines(settings)
    exit_on_signals(rereads=settings.rereads)  # until the loop takes them over
    allow_files(settings.max_connections)
    close_logs = configure_logs(settings)
    try:
        join(settings)
        tell_service_links()
        sound = uvloop.run(_work(settings))
    except EngineUnavailable as error:
        raise StartError(f"the engine does not start: {error}") from error
    finally:
        close_logs()
    if not sound:
        raise SystemExit(EXIT_BROKEN)


async def _work(settings: CoreSettings) -> bool:
    """Work until a signal, or a bug; whether there was no bug."""
    tokens.byte_table()
    service = open_service(settings)
    try:
        background = Background(service, works=True)
        if await _started(service, background):
            settle()
            engine, concurrency = settings.engines or settings.engine, settings.worker_concurrency
            async with watching_loop(settings), lag_counted(service.metrics), _probes(service, background):
                logs.event(logger, logging.INFO, "working", engine=engine, concurrency=concurrency)
                with rereading(service.tenants.keys, partial(reread, service)):
                    await background.run(on_fault=background.stop)
    finally:
        await close_service(service)
    return not background.broken


async def _started(service: Service, background: Background) -> bool:
    """Start the engine, which may take minutes to load its model; whether no signal came meanwhile, or before."""
    loop, starting = asyncio.get_running_loop(), asyncio.create_task(start_service(service))

    def stop() -> None:
        background.stop()
        starting.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    await asyncio.gather(starting, return_exceptions=True)
    if not background.stopping:
        starting.result()
    return not background.stopping


@asynccontextmanager
async def _probes(service: Service, background: Background) -> AsyncGenerator[None]:
    """Answer probes and scrapes meanwhile, where WORKER_PORT says so."""
    settings = service.settings
    if not settings.worker_port:
        yield
        return
    with listen(settings.host, settings.worker_port) as listener:
        server = inner_server(create_probe_app(service, background), PROBE_CONNECTIONS, PROBE_SECONDS)
        answering = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield
        finally:
            server.should_exit = True
            await answering
