"""The process that sessions are forked from: it has imported their modules once, and waits to be asked for a session.

The service talks to it over a socket: it sends a session's limits and folders, with the session's end of its channel.
It hears of the process, with a file that stands for it, and later of its end. The zygote ends with the service, and all
sessions end with it. No code of a session ever runs in it.
"""

import contextlib
import gc
import importlib
import importlib.util
import json
import os
import selectors
import signal
import site
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from service.features.sandbox.inside import cells, mounts
from service.features.sandbox.inside.confine import KernelBounds, confine, die_with_parent

CONTROL = 0
"""The file of the socket to the service: the standard input."""

CHANNEL = 3
"""The file of a session's channel."""

MAX_MESSAGE_BYTES = 1 << 16

USEFUL = (
    *("array", "asyncio", "bisect", "calendar", "collections", "copy", "csv", "dataclasses", "datetime", "decimal"),
    *("enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator", "pathlib"),
    *("pprint", "random", "re", "shutil", "sqlite3", "statistics", "string", "tempfile", "textwrap", "time", "typing"),
    *("unicodedata", "uuid", "zipfile"),
)
SCIENTIFIC = ("numpy", "pandas", "matplotlib.pyplot")
"""The modules that sessions find imported already: parts of Python, and those of these that are installed."""

READABLE = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share", "/usr/local/lib", "/etc/localtime", "/etc/fonts")
"""The places that sessions may read besides Python's own folders."""

SESSION_ENVIRONMENT = {"LANG": "C.UTF-8", "MPLBACKEND": "agg", "OPENBLAS_NUM_THREADS": "1"}


def python_folders() -> list[str]:
    """Where this Python has its modules."""
    roots = dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix))
    return [f"{root}/{name}" for root in roots for name in ("lib", "lib64", "share") if Path(root, name).is_dir()]


def modules_of_sessions(paths: Sequence[str], root: str, installed: Sequence[str]) -> list[str]:
    """The folders in which sessions find modules: without `root`, which has the service, unless `installed` packages
    lie there.
    """
    return [path for path in paths if path and (path != root or path in installed)]


def tasks_of(users: range) -> int:
    """How many threads the processes of some users have, as far as this process can see."""
    count = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
            count += int(fields["Threads"]) if int(fields["Uid"].split()[0]) in users else 0
    return count


class ZygoteLoop:
    """The loop: it takes messages, forks, signals, and tells who died."""

    def __init__(self, control: socket.socket, readable: Sequence[str], *, linked: bool) -> None:
        self._control = control
        self._readable = readable
        self._linked = linked
        self._alive: dict[int, tuple[int, int]] = {}
        """The process and the session's number for each file that stands for a process."""
        self._chosen = selectors.DefaultSelector()
        self._tasks = tasks_of(range(os.getuid(), os.getuid() + 1))

    def run(self) -> None:
        """Run until the service closes the socket."""
        self._chosen.register(self._control, selectors.EVENT_READ)
        self._tell({"started": True, "linked": self._linked})
        while True:
            for key, _ in self._chosen.select():
                if key.fileobj is not self._control:
                    self._bury(key.fd)
                    continue
                text, files, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, 1)
                if not text:
                    return
                self._fork(json.loads(text), files[0])

    def end(self) -> None:
        """Kill all sessions, and see them dead."""
        for pid, _ in self._alive.values():
            os.kill(pid, signal.SIGKILL)
        for pid, _ in self._alive.values():
            os.waitpid(pid, 0)

    def _fork(self, message: dict[str, Any], channel: int) -> None:
        number = message["fork"]
        try:
            pid = os.fork()
        except OSError as error:  # threads of other sessions may have all that a container may have
            cells.send(channel, {"failed": f"no process can begin: {error.strerror}"})
            os.close(channel)
            self._tell({"died": number, "status": 0})
            return
        if not pid:
            self._be_session(message, channel)
        os.close(channel)
        process = os.pidfd_open(pid)
        self._alive[process] = pid, number
        self._chosen.register(process, selectors.EVENT_READ)
        self._tell({"forked": number, "pid": pid}, process)

    def _be_session(self, message: dict[str, Any], channel: int) -> None:
        """Never returns: this process is the session from here on."""
        try:
            os.dup2(channel, CHANNEL)
            try:
                self._become(message)
            except BaseException as error:
                cells.send(CHANNEL, {"failed": f"{type(error).__name__}: {error}"})
                raise
            cells.serve(CHANNEL, message["output_chars"])
        finally:
            os._exit(0)

    def _become(self, message: dict[str, Any]) -> None:
        """Have what a session has, and no more."""
        uid, files, temporary = message["uid"], f"{message['folder']}/data", f"{message['folder']}/tmp"
        os.dup2(os.open(files, os.O_PATH | os.O_DIRECTORY), mounts.FOLDER)
        nothing = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        os.closerange(CHANNEL + 1, mounts.FOLDER)
        os.closerange(mounts.FOLDER + 1, os.sysconf("SC_OPEN_MAX"))
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")  # it is the first to go where a machine has no memory left
        home = str(mounts.LINK) if self._linked else files
        os.environ.clear()
        os.environ.update(SESSION_ENVIRONMENT, HOME=home, TMPDIR=temporary, MPLCONFIGDIR=temporary)
        os.chdir(files)
        os.umask(0o022)
        bounds = KernelBounds(**message["bounds"])
        if uid is None:  # its threads count together with all others of the user
            bounds = replace(bounds, threads=bounds.threads + self._tasks)
        for name in [name for name in sys.modules if name.split(".")[0] == "service"]:
            del sys.modules[name]
        if numpy := sys.modules.get("numpy"):
            numpy.random.seed()  # else all sessions would draw the same numbers
        confine([*READABLE, *self._readable], [files, temporary], bounds, uid)
        if os.getppid() != message["zygote"]:
            os._exit(0)

    def _bury(self, process: int) -> None:
        """Take note of a session that ended."""
        pid, number = self._alive.pop(process)
        self._chosen.unregister(process)
        os.close(process)
        self._tell({"died": number, "status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])})

    def _tell(self, message: dict[str, Any], *files: int) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], files)


def main() -> None:
    """Import, and wait."""
    os.setsid()  # a terminal's Ctrl-C is for the service
    parent = int(sys.argv[1])  # behind it, the folder that has those of sessions
    die_with_parent()
    control = socket.socket(fileno=os.dup(CONTROL))
    try:
        if os.getppid() != parent:
            return
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the service ends it, once its own requests have ended
        root = os.environ.pop("PYTHONPATH", "")
        sys.path[:] = modules_of_sessions(sys.path, root, site.getsitepackages())
        readable = python_folders()
        linked = mounts.view([*readable, sys.argv[2]])
        die_with_parent()  # again: a new user namespace took it back
        for name in (*USEFUL, *SCIENTIFIC):
            if importlib.util.find_spec(name.split(".")[0]):
                importlib.import_module(name)
        if "matplotlib.pyplot" in sys.modules:
            _warm_pyplot()
        gc.collect()
        gc.freeze()
        zygote = ZygoteLoop(control, readable, linked=linked)
        zygote.run()
        zygote.end()
    except BaseException as error:
        with contextlib.suppress(OSError):
            control.send(json.dumps({"broken": f"{type(error).__name__}: {error}"[:1000]}).encode())
        raise


def _warm_pyplot() -> None:
    """Draw once, to load the modules of the first figure."""
    import io

    pyplot = sys.modules["matplotlib.pyplot"]
    pyplot.plot([1, 2])
    pyplot.savefig(io.BytesIO(), format="png")
    pyplot.close("all")


if __name__ == "__main__":
    main()
