"""A server that has imported `harmonium` and forks its processes, as imports are most of what a start costs.

Each process has its own arguments, environment, folder, log and exit status, and takes signals like any other. All of
them end with the tests, however those end. Starts that import everything are tested by `at_a_terminal`, by
tests/project and by the release. The children of multiprocessing's own fork server would have a `parent_process`, as
only workers of `serve` have.
"""

import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from service import process
from service.settings.sources import PREFIX
from tests.support import ROOT
from tests.support.waiting import wait_until

MESSAGE_BYTES = 1 << 17
READY_SECONDS = 60.0
COMMAND, STAND_IN = "service.__main__", "tests.support.service.alone"
"""The modules whose `main` is the command, and the command with the tests' own engine and server."""

AT_EXEC = ("LD_PRELOAD", "FAKETIME", "NO_FAKE_STAT")
"""Variables that count for a program from its beginning on: a server has its own, and so have the processes that it
forks."""

PR_SET_PDEATHSIG = 1


class ForkedProcess:
    """One process, with what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        log: IO[bytes],
        errors: IO[bytes] | None = None,
    ) -> None:
        """Starts it; its errors are in the log too, unless they have a file of their own. Raises ConnectionError if the
        server has ended.
        """
        self._arguments = list(arguments)
        self.returncode: int | None = None
        self._parent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._parent.connect(_fork_server(module, tuple((name, environment.get(name)) for name in AT_EXEC)))
        told = json.dumps({"arguments": self._arguments, "environment": dict(environment), "folder": str(folder)})
        socket.send_fds(self._parent, [told.encode()], [log.fileno(), (errors or log).fileno()])
        self.pid = self._told()

    def poll(self) -> int | None:
        """Its exit status if it has ended; it is negative after a signal."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit status, once it has ended. Raises TimeoutExpired."""
        if self.returncode is None:
            self._parent.settimeout(timeout)
            try:
                self.returncode = self._told()
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired(self._arguments, timeout or 0) from None
            self._parent.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send_signal(signal.SIGKILL)

    def _told(self) -> int:
        """The next number that its parent tells: the process id, then the exit status."""
        if told := self._parent.recv(MESSAGE_BYTES):
            return int(told)
        raise ConnectionError(f"the process that forked {self._arguments} has ended")


@cache
def _fork_server(module: str, at_exec: tuple[tuple[str, str | None], ...]) -> str:
    """The socket of a server for a module and these variables, which ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    path = Path(folder.name, "s")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX) and name not in AT_EXEC}
    kept |= {name: value for name, value in at_exec if value is not None}
    server = subprocess.Popen([sys.executable, "-m", __name__, module, path], stdin=subprocess.PIPE, cwd=ROOT, env=kept)

    def listens() -> bool:
        assert server.poll() is None, "the fork server has ended"
        return path.exists()

    wait_until(listens, READY_SECONDS)
    _kept.append((server, folder))
    return str(path)


_kept: list[tuple[subprocess.Popen[bytes], tempfile.TemporaryDirectory[str]]] = []
"""The servers and the folders of their sockets. A server ends when its standard input does."""


def _serve(listener: socket.socket) -> socket.socket:
    """Fork for each connection, and return it in the new process, until nobody has the other end of standard input."""
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if listener not in ready:
            raise SystemExit
        connection, _ = listener.accept()
        if not os.fork():
            listener.close()
            return connection
        connection.close()


def _become(connection: socket.socket) -> None:
    """Fork once more, and return in the new process as the one that was asked for. The old one tells how it ends."""
    _end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    told, streams, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 2)
    if pid := os.fork():
        connection.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        with suppress(OSError):  # nobody waits for it
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asked: dict[str, Any] = json.loads(told)
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None  # it may be another one with this environment
    os.chdir(asked["folder"])
    for stream, file in enumerate(streams, start=1):
        os.dup2(file, stream)
        os.close(file)
    sys.argv[1:] = asked["arguments"]


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _imported(module: str) -> Callable[[], None]:
    """The `main` of a module, with all that it would import, which is never looked through for garbage."""
    gc.disable()
    main = sys.modules["__main__"] = import_module(module)  # other processes of a service import it as theirs
    if module == STAND_IN:
        main.stand_in()
    import_module("service.commands.running")
    process.features()
    gc.freeze()
    gc.enable()
    return main.main


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    main = _imported(sys.argv[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{sys.argv[2]}.new")
        listener.listen()
        os.rename(f"{sys.argv[2]}.new", sys.argv[2])
        connection = _serve(listener)
    _become(connection)
    main()


if __name__ == "__main__":
    _main()
