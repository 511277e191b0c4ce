"""Servers that keep an append-only file in a folder, to be killed, to lose the file's end, and to start again."""

import shutil
import subprocess
from pathlib import Path
from typing import Protocol

from redis import Redis
from redis import exceptions as redis_errors

from store.embedded import EmbeddedServer
from tests.support.needs import program_path
from tests.support.waiting import wait_until

NEEDS = {"redis-server": "redis-server"}
START_SECONDS = 10.0


class Durable(Protocol):
    """What a test does with such a server. After `stop`, or a kill and `stop`, it can be started again."""

    @property
    def url(self) -> str: ...
    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class DebianServer:
    """A redis-server set up as the embedded one is."""

    def __init__(self, folder: Path) -> None:
        program = program_path("redis-server", NEEDS)
        self._socket = folder / "redis.sock"
        self.url = f"unix://{self._socket}"
        place = ("--port", "0", "--unixsocket", str(self._socket), "--dir", str(folder))
        self._command = [program, *place, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]

    @property
    def pid(self) -> int:
        """The running server's process id."""
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it has read its file back."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        with Redis(unix_socket_path=str(self._socket)) as client:

            def answers() -> bool:
                assert self._process.poll() is None, "redis-server ended at once"
                return client.ping()

            # BusyLoadingError is a ConnectionError too
            wait_until(answers, START_SECONDS, "redis-server did not start", passing=redis_errors.ConnectionError)

    def stop(self) -> None:
        """End it gently, if it is still there."""
        self._process.terminate()
        self._process.wait()


def durable(kind: str, folder: Path) -> Durable:
    """The embedded server ("valkey") or Debian's ("redis") on a folder, which is made; not started yet."""
    folder.mkdir(parents=True, exist_ok=True)
    return EmbeddedServer(folder) if kind == "valkey" else DebianServer(folder)


def torn_copy(folder: Path, copy: Path, lost_bytes: int) -> Path:
    """A copy of a server's folder whose append-only file lacks its last bytes; the copy's name."""
    shutil.copytree(folder / "appendonlydir", copy / "appendonlydir")
    (copy / "lock").touch()  # by which the embedded server knows a folder of its own
    file = max(copy.glob("appendonlydir/*.incr.aof"))
    with file.open("r+b") as tail:
        tail.truncate(max(0, file.stat().st_size - lost_bytes))
    return copy
