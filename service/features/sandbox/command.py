"""`harmonium sandbox`: a process that has the sessions of Python for others, and nothing else.

It listens on a Unix socket, which the file's mode guards, or over TCP for those who have the key. Sessions end with it.
"""

import asyncio
import errno
import logging
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from service import logs
from service.commands.options import LOG_OPTIONS, with_settings
from service.commands.serve import StartError, allow_files, configure_logs, listen, starting
from service.commands.signals import exit_on_signals, watching_loop
from service.commands.worker import inner_server
from service.features.sandbox.app import sandbox_app
from service.features.sandbox.choose import own_sandbox
from service.features.sandbox.port import Unusable
from service.features.sandbox.settings import UNIX, SandboxSettings
from service.settings.sources import variable
from service.web.stopping import STOP_SIGNALS

STOP_SECONDS = 1
"""How long an answer that is under way may delay the end."""

CONNECTIONS = 2048
BACKLOG = 128
SOCKET_MODE = 0o660
"""Its user and its group may connect."""

logger = logging.getLogger(__name__)


@with_settings("sandbox_listen", "sandbox_sessions", "sandbox_tenant_sessions", *LOG_OPTIONS)
def sandbox(settings: SandboxSettings) -> None:
    """Run a model's Python in confined sessions, until Ctrl-C or SIGTERM.

    `HARMONIUM_SANDBOX` of the service names the sandbox's address. A sandbox needs no network, no Redis and nothing of
    the service: give it its own machine or container. docs/tools.md explains how each protects.

    Before the start a test session tries every forbidden act. If one succeeds, the command names this act and ends with
    status 1. Over TCP the sandbox needs `HARMONIUM_SANDBOX_KEY`.
    """

    with starting():
        run(settings)


def run(settings: SandboxSettings) -> None:
    """Serve sessions until a signal says stop. Has to be called from the main thread. Raises StartError."""
    exit_on_signals()  # until the loop takes them over
    allow_files(settings.max_connections)
    if not settings.sandbox_listen.startswith(UNIX) and not settings.sandbox_key.get_secret_value():
        raise StartError(
            f"{variable('sandbox_listen')}={settings.sandbox_listen} can be reached from other machines, which could "
            f"then run Python; set {variable('sandbox_key')}, or listen on a Unix socket"
        )
    with _listener(settings.sandbox_listen) as listener:
        close_logs = configure_logs(settings)
        try:
            uvloop.run(_serve(settings, listener))
        except Unusable as error:
            raise StartError(f"this machine can't have a sandbox: {error}; see docs/tools.md") from error
        finally:
            close_logs()
            if settings.sandbox_listen.startswith(UNIX):
                Path(settings.sandbox_listen.removeprefix(UNIX)).unlink(missing_ok=True)


def _listener(place: str) -> socket.socket:
    """A socket that listens there. Raises StartError."""
    if not place.startswith(UNIX):
        parts = urlsplit(place)
        return listen(parts.hostname or "", parts.port or 0)
    path = place.removeprefix(UNIX)
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_left_over(path)
        before = os.umask(0o777 & ~SOCKET_MODE)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        in_use = error.errno == errno.EADDRINUSE
        why = "another sandbox listens there" if in_use else error.strerror
        raise StartError(f"can't listen on {path}: {why}; set {variable('sandbox_listen')} to another path") from error
    return listener


def _remove_left_over(path: str) -> None:
    """Delete the socket of a process that died. Raises OSError where one listens, or it is no socket."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if Path(path).is_socket():
                Path(path).unlink()
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


async def _serve(settings: SandboxSettings, listener: socket.socket) -> None:
    """Serve until a signal. Raises Unusable where sessions can't be confined."""
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stopping.set)
    sandbox = own_sandbox(settings)
    starting = asyncio.create_task(sandbox.start())
    stopped = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stopping.is_set():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return
        await starting
        app = sandbox_app(sandbox, settings.sandbox_key.get_secret_value())
        server = inner_server(app, CONNECTIONS, STOP_SECONDS)
        async with watching_loop(settings):
            answering = asyncio.create_task(server.serve(sockets=[listener]))
            logs.event(logger, logging.INFO, "sandbox ready", listen=settings.sandbox_listen)
            await asyncio.wait([answering, stopped], return_when=asyncio.FIRST_COMPLETED)
            server.should_exit = True
            await answering
    finally:
        await sandbox.aclose()
