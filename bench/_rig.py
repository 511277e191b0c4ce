"""A Redis to measure the store on: its CPU, its memory, and what the store sends to it, taken down and sent at will.

The store's own commands are recorded before the clock runs, so that what is measured is the server's work for them and
nothing of Python's. Nothing here may know what is measured.
"""

import asyncio
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import hiredis

from store.embedded import EmbeddedServer
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis import scripts
from store.redis.connection import connect
from store.redis.wire import Argument, Command, Wires, pack

START_SECONDS = 10.0
READ_BYTES = 1 << 20
SETTLE_SECONDS = 10.0

_FAR_AHEAD = [b"%d" % 10**11, b"0"]
"""Seconds and µs, some thousand years from now."""

OF_UPKEEP = (
    *("restore", "let_go", "redact", "repair", "discard", "settle", "archived"),
    *("begin_archive", "note_older", "queue_again", "pass_older", "end_archive"),
)

SERVING = tuple(each for each in scripts.ALL if each in scripts.AT_ONCE or each.name not in OF_UPKEEP)
"""The scripts that a server has which serves requests of every kind, without an archive, and that nobody repairs."""

Commands = list[bytes]
"""Packed commands, of which each asks for one reply."""


class Cost(NamedTuple):
    """What the server spent on one operation, in µs: CPU of its main thread, and what it says that scripts took."""

    cpu: float
    script: float


class Server:
    """A running server and one connection to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(url.removeprefix("unix://"))

    def ask(self, *command: str | int | bytes) -> Any:
        """The reply to one command. Raises hiredis' error for an error reply."""
        (reply,) = self.send([pack(command)], 1)
        return reply

    def send(self, commands: Sequence[bytes], replies: int) -> list[Any]:
        """Send all at once and wait for so many replies, which must be small."""
        self._socket.sendall(b"".join(commands))
        reader = hiredis.Reader()
        got: list[Any] = []
        while len(got) < replies:
            reader.feed(self._socket.recv(READ_BYTES))
            while (reply := reader.gets()) is not False:
                if isinstance(reply, hiredis.ReplyError):
                    raise reply
                got.append(reply)
        return got

    def cost(self, operations: Sequence[bytes], *, replies: int = 1, at_once: int = 1) -> Cost:
        """What one of `operations` costs, of which each has so many replies and so many are sent at once."""
        scripts, cpu = self._scripts_us(), self.cpu_us()
        for start in range(0, len(operations), at_once):
            some = operations[start : start + at_once]
            self.send(some, replies * len(some))
        cpu, scripts = self.cpu_us() - cpu, self._scripts_us() - scripts
        return Cost(cpu / len(operations), scripts / len(operations))

    def told(self, section: str) -> dict[str, str]:
        """A section of INFO."""
        lines = self.ask("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def held_bytes(self) -> int:
        """The memory of what is stored: what the server uses, but for connections and what waits to be written."""
        self._settle()
        memory = self.told("memory")
        clients = re.findall(rb" tot-mem=(\d+)", self.ask("CLIENT", "LIST"))  # INFO has a sum, of some time ago
        return int(memory["used_memory"]) - sum(map(int, clients)) - int(memory["mem_aof_buffer"])

    def cpu_us(self) -> float:
        """CPU of the server's main thread so far, in µs."""
        cpu = self.told("cpu")
        return 1e6 * (float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"]))

    def _scripts_us(self) -> float:
        calls = self.told("commandstats").get("cmdstat_fcall", "usec=0,")
        return float(calls.split("usec=")[1].split(",")[0])

    def _settle(self) -> None:
        """Wait until nothing that was unlinked is left to be freed."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while int(self.told("memory")["lazyfree_pending_objects"]) and time.monotonic() < deadline:
            time.sleep(0.01)


class Recorder(Wires):
    """Wires that keep what is sent and always give the same reply, but to a question for the time.

    The time that they tell is so far ahead that nothing is late, whenever what was kept is sent.
    """

    def __init__(self, reply: list[bytes]) -> None:
        self.sent: Commands = []
        self._reply = reply

    async def row(self, commands: Sequence[Command], at: Argument | None = None, *, ahead: bool) -> list[Any]:
        """Keep the commands."""
        self.sent += [pack(command) for command in commands if command[0] != "TIME"]
        return [_FAR_AHEAD if command[0] == "TIME" else self._reply for command in commands]


Calls = Callable[[ConversationHistoryStore], Awaitable[object]]
"""Some calls of a store."""


def recorded(calls: Calls, *, caps: Caps | None = None, reply: str = "ok") -> Commands:
    """What a store sends for `calls`, when every script answers with `reply`."""
    store = ConversationHistoryStore(connect("redis://127.0.0.1"), caps=caps)
    store.server.wires = recorder = Recorder([reply.encode()])
    asyncio.run(_all(calls(store)))
    return recorder.sent


async def _all(calls: Awaitable[object]) -> None:
    await calls


@contextmanager
def running(kind: str) -> Iterator[Server]:
    """A new server that knows the store's scripts: the "embedded" one, or the "redis" on the PATH."""
    with tempfile.TemporaryDirectory() as folder:
        opened = _redis(Path(folder)) if kind == "redis" else _embedded(Path(folder))
        with opened as url:
            server = Server(url)
            # writing the file anew takes a copy of the process, whose pages then cost whoever touches them
            server.ask("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
            for script in SERVING:
                server.ask("FUNCTION", "LOAD", script.library)
            yield server


@contextmanager
def _embedded(folder: Path) -> Iterator[str]:
    with EmbeddedServer(folder) as server:
        yield server.url


@contextmanager
def _redis(folder: Path) -> Iterator[str]:
    program = shutil.which("redis-server")
    if program is None:
        raise SystemExit("there is no redis-server on the PATH")
    path = folder / "redis.sock"
    options = ("--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "yes", "--dir", folder)
    with subprocess.Popen([program, *map(str, options)], stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not _listens(path):
                if time.monotonic() > deadline:
                    raise RuntimeError("redis-server did not start in time")
                time.sleep(0.01)
            yield f"unix://{path}"
        finally:
            process.terminate()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
