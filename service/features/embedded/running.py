"""Running the embedded server of a data folder, and reaching one that runs."""

import logging
import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from service.commands.serve import StartError
from service.logs import event
from service.settings.sources import variable
from store.embedded import ARCHIVE, LOCK, EmbeddedServer, address_of
from store.errors import DataFolderBusy, NoStore, StoreUnavailable

logger = logging.getLogger(__name__)


@contextmanager
def own_server(folder: Path) -> Generator[str]:
    """The URL of a server of this process, until the block's end. Raises StartError."""
    server = EmbeddedServer(folder)
    try:
        server.start()
    except DataFolderBusy as error:
        raise StartError(
            f"another harmonium{f' (process {error.pid})' if error.pid else ''} keeps its conversations in "
            f"{folder}; stop it, choose another folder with --data-dir, or let both share one "
            f"Redis with {variable('redis_url')}"
        ) from error
    except StoreUnavailable as error:
        raise StartError(f"{error}; {variable('redis_url')} names a Redis to use instead") from error
    except OSError as error:
        raise StartError(f"can't keep data in {folder}: {error.strerror}; see --data-dir") from error
    stopping, lost = threading.Event(), list[int]()

    def watch() -> None:
        """Have the service stop where its server ends before its time: nothing can be stored without it."""
        status = server.wait()
        if not stopping.is_set():
            lost.append(status)
            event(logger, logging.ERROR, "the embedded server ended by itself", exit_status=status)
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="embedded server's end", daemon=True).start()
    try:
        yield server.url
    finally:
        stopping.set()
        server.stop()
        if lost:
            raise StartError(f"the embedded server ended by itself (status {lost[0]}); what it stored is kept")


@contextmanager
def any_server(folder: Path, *, makes: bool) -> Generator[str]:
    """The URL of the server that another process runs, or of one of our own meanwhile. Raises StoreUnavailable, and
    NoStore where there was none yet, unless it `makes` a store: a new one would be empty.
    """
    if not makes and not (folder.exists() and {LOCK, ARCHIVE} & {path.name for path in folder.iterdir()}):
        raise NoStore(
            f"no store is in {folder}; name its folder with {variable('data_dir')}, or its Redis with "
            f"{variable('redis_url')}"
        )
    server = EmbeddedServer(folder)
    try:
        server.start()
    except DataFolderBusy:
        yield address_of(folder)
        return
    try:
        yield server.url
    finally:
        server.stop()
