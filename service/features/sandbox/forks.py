"""The zygote from outside: it is started, asked for sessions, and asked to signal them.

It is one process beside this one, which has imported the modules that sessions share. If it dies, all sessions die with
it, and the next session that is opened gets a new one.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path

import msgspec

import service
from service.features.sandbox.inside.zygote import MAX_MESSAGE_BYTES, SESSION_ENVIRONMENT
from service.features.sandbox.port import Full, SessionLimits, Unusable
from service.features.sandbox.session import THREADS, ForkedSession

ZYGOTE = "service.features.sandbox.inside.zygote"

START_SECONDS = 60.0
"""How long it may take to import. The first time on a machine matplotlib looks for all fonts."""

END_SECONDS = 5.0


class ForkReport(msgspec.Struct, frozen=True):
    """A report of the zygote: one of these, with the session's number."""

    started: bool = False
    linked: bool = False
    broken: str = ""
    forked: int = 0
    pid: int = 0
    died: int = 0
    status: int = 0


class Zygote:
    """A zygote. Sessions have numbers here."""

    def __init__(self, process: asyncio.subprocess.Process, control: socket.socket) -> None:
        self._process, self._control = process, control
        self.pid = process.pid
        self._sessions: dict[int, ForkedSession] = {}
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[bool] = self._loop.create_future()
        self.alive = True
        self.linked = False
        """Whether sessions find their folders as /mnt/data."""
        self._loop.add_reader(control, self._take_reports)

    @classmethod
    async def start(cls, folder: Path) -> "Zygote":
        """Start one whose sessions have their folders below `folder`. Raises Unusable."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        environment = {
            "PYTHONPATH": str(Path(service.__file__).parents[1]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": "/usr/bin:/bin",
            "MPLCONFIGDIR": str(folder.parent / "matplotlib"),  # where it keeps the fonts that it found
            "MALLOC_ARENA_MAX": "2",
            "OMP_NUM_THREADS": "1",  # a fork takes one thread along
            **SESSION_ENVIRONMENT,
        }
        command = (sys.executable, "-P", "-s", "-m", ZYGOTE, str(os.getpid()), str(folder))
        with theirs:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=theirs.fileno(),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                    env=environment,
                    cwd="/",
                )
            except OSError as error:
                ours.close()
                raise Unusable(f"{sys.executable} can't be run: {error.strerror}") from error
        zygote = cls(process, ours)
        try:
            async with asyncio.timeout(START_SECONDS):
                zygote.linked = await zygote._begun
        except TimeoutError:
            await zygote.end()
            raise Unusable(f"Python didn't start within {START_SECONDS:g} s") from None
        except BaseException:
            await zygote.end()
            raise
        return zygote

    async def fork(self, tenant: str, limits: SessionLimits, home: Path, uid: int | None, places: int) -> ForkedSession:
        """A new session, confined, with its folders in `home`. Raises Unusable where it can't be had, and Full."""
        self._count += 1
        message = {
            "fork": self._count,
            "zygote": self.pid,
            "folder": str(home),
            "uid": uid,
            "output_chars": limits.output_chars,
            "bounds": {
                "memory_bytes": limits.memory_bytes,
                "file_bytes": limits.disk_bytes,
                "cpu_seconds": limits.cpu_seconds,
                "threads": THREADS if uid is not None else THREADS * places,
            },
        }
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        session = self._sessions[self._count] = ForkedSession(tenant, limits, home, uid)
        with theirs:
            try:
                socket.send_fds(self._control, [msgspec.json.encode(message)], [theirs.fileno()])
            except OSError as error:
                ours.close()
                del self._sessions[self._count]
                if isinstance(error, BlockingIOError):
                    raise Full("too many sessions are opened at once") from None
                raise Unusable("the process that forks sessions has ended") from error
        await session.connect(ours)
        return session

    async def end(self) -> None:
        """Have it kill all sessions and end."""
        if self.alive:
            self._control.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        self._over()

    def _take_reports(self) -> None:
        """Take its reports, until there are no more."""
        while self.alive:
            try:
                text, files, _, _ = socket.recv_fds(self._control, MAX_MESSAGE_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                text, files = b"", []
            if not text:
                self._over()
                return
            self._take(msgspec.json.decode(text, type=ForkReport), files)

    def _take(self, told: ForkReport, files: list[int]) -> None:
        if told.started and not self._begun.done():
            self._begun.set_result(told.linked)
        elif told.broken and not self._begun.done():
            self._begun.set_exception(Unusable(f"Python's sessions can't begin: {told.broken}"))
        elif told.forked and told.forked in self._sessions:
            self._sessions[told.forked].wait_for_birth(told.pid, files.pop())
        elif told.died and (session := self._sessions.pop(told.died, None)):
            session.die(told.status)
        for file in files:
            os.close(file)

    def _over(self) -> None:
        """Note that it has ended, and its sessions with it."""
        if not self.alive:
            return
        self.alive = False
        self._loop.remove_reader(self._control)
        self._control.close()
        if not self._begun.done():
            self._begun.set_exception(Unusable("Python's sessions can't begin: the process that forks them ended"))
        for session in self._sessions.values():
            session.die(None)
        self._sessions.clear()
