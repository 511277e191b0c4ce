"""The proof that sessions are confined: one session tries all that it must not be able to do to another.

It runs before anybody gets a session. Around the two are things that they could reach if the confinement had a hole: a
file that everybody may write, a socket that everybody may send to. Any attempt that comes through, or leaves a trace,
is a reason not to have a sandbox at all.
"""

import asyncio
import os
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from service.sandbox.port import Cell, Full, Gone, Limits, Sandbox, Unusable
from service.sandbox.session import THREADS, Session

ATTEMPTS = Path(__file__).with_name("inside") / "attempts.py"
TENANT = "harmonium-proof"
TRYING, TRIED = "proof-trying", "proof-tried"
LIMITS = Limits(memory_bytes=256 << 20, disk_bytes=1 << 20, files=100, seconds=20, cpu_seconds=20, output_chars=20_000)
LEAST_ATTEMPTS = 300
MAX_REASONS = 8
SECRET = b"a secret"


class Processes(Sandbox, Protocol):
    """A sandbox whose sessions are processes of this machine."""

    def session(self, name: str) -> Session:
        """The session of a name. Raises Gone."""
        ...

    @property
    def zygote_pid(self) -> int:
        """The process that sessions are forked from."""
        ...


class Report(msgspec.Struct, frozen=True):
    """The session's report: how much it tried, what came through, and what it needs and can't do."""

    tried: int
    through: list[str]
    cannot: list[str]


async def prove(sandbox: Processes) -> None:
    """Raises Unusable with the reasons, where the sandbox's sessions aren't confined or can't be used."""
    try:
        await sandbox.open(TRIED, TENANT, LIMITS)
        folder = (await sandbox.open(TRYING, TENANT, LIMITS)).folder
        try:
            reasons = await _reasons(sandbox, folder)
        finally:
            await sandbox.close(TRYING)
            await sandbox.close(TRIED)
    except (Full, Gone) as error:
        reasons = [str(error)]
    if reasons:
        more = f" and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
        raise Unusable(f"{'; '.join(reasons[:MAX_REASONS])}{more}")


async def _reasons(sandbox: Processes, folder: str) -> list[str]:
    tried = sandbox.session(TRIED)
    await sandbox.run(TRIED, "remember", "kept = 6 * 7")
    with _Around(tried.pid) as around:
        threads = THREADS if tried.uid is not None else 0
        pids = [os.getpid(), sandbox.zygote_pid, tried.pid]
        asked = f"{folder!r}, {around.secret!r}, {around.socket!r}, [{str(tried.folder)!r}], {pids!r}, {threads}"
        code = await asyncio.to_thread(ATTEMPTS.read_text)
        reasons = _judged(await sandbox.run(TRYING, "try", f"{code}\nprint(report({asked}))\n"))
        reasons += around.traces()
    try:
        kept = (await sandbox.run(TRIED, "recall", "kept")).logs
    except Gone:
        kept = ""
    if kept != "42\n":
        reasons.append("another session was changed")
    return reasons


class _Around:
    """The targets of a session that isn't confined: a file, a folder and a socket for everybody, and a process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def __enter__(self) -> "_Around":
        self._made = tempfile.TemporaryDirectory(prefix="harmonium-proof-")
        self._folder = Path(self._made.name)
        self._file = self._folder / "secret"
        self._file.write_bytes(SECRET)
        self._heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._heard.setblocking(False)
        self._heard.bind(str(self._folder / "socket"))
        for path in (self._folder, *self._folder.iterdir()):
            path.chmod(0o777)
        self.secret, self.socket = str(self._file), str(self._folder / "socket")
        self._before = self._state()
        return self

    def __exit__(self, *_: object) -> None:
        self._heard.close()
        self._made.cleanup()

    def _state(self) -> tuple[object, ...]:
        """The state of the process and of the file that others could change; empty where one is gone."""
        if not (self._file.exists() and Path(f"/proc/{self._pid}").exists()):
            return ()
        limits = Path(f"/proc/{self._pid}/limits").read_text()
        process = limits, os.getpriority(os.PRIO_PROCESS, self._pid), os.sched_getaffinity(self._pid)
        found = self._file.stat()
        return *process, self._file.read_bytes(), found.st_mode, found.st_mtime_ns, found.st_nlink

    def traces(self) -> list[str]:
        """The traces of a session outside of its folder."""
        found: list[str] = []
        if self._state() != self._before:
            found.append("another process or file was changed")
        if sorted(path.name for path in self._folder.iterdir()) != ["secret", "socket"]:
            found.append("files were made outside of a session's folder")
        with suppress(BlockingIOError):  # there is none
            self._heard.recv(1)
            found.append("a message got out")
        return found


def _judged(cell: Cell) -> list[str]:
    """The faults by a session's own account."""
    if cell.ended != "ok":
        last = cell.logs.strip().splitlines()[-1:] or [""]
        return [f"the attempts ended early ({cell.ended}): {last[0][:200]}"]
    try:
        report = msgspec.json.decode(cell.logs, type=Report)
    except msgspec.DecodeError:
        return ["the attempts didn't say what came of them"]
    reasons = [f"a session can: {name}" for name in report.through]
    reasons += [f"a session can't {name}" for name in report.cannot]
    if report.tried < LEAST_ATTEMPTS:
        reasons.append(f"only {report.tried} attempts were made")
    return reasons
