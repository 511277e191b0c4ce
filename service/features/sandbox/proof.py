"""The proof that sessions are confined: one session tries all that it must not be able to do to another.

It runs before anybody gets a session. Around the two are things that they could reach if the confinement had a hole: a
file that everybody may write, a socket that everybody may send to. Any attempt that comes through, or leaves a trace,
is a reason not to have a sandbox at all.
"""

import asyncio
import os
import socket
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from service.features.sandbox.port import Cell, Full, Sandbox, SessionGone, SessionLimits, Unusable
from service.features.sandbox.session import THREADS, ForkedSession

ATTEMPTS = Path(__file__).with_name("inside") / "attempts.py"
TENANT = "harmonium-proof"
TRYING, TRIED = "proof-trying", "proof-tried"
LIMITS = SessionLimits(
    memory_bytes=256 << 20, disk_bytes=1 << 20, files=100, seconds=60, cpu_seconds=20, output_chars=20_000
)
LEAST_ATTEMPTS = 300
MAX_REASONS = 8
SECRET = b"a secret"


class ProofReport(msgspec.Struct, frozen=True):
    """The session's report: how much it tried, what came through, and what it needs and can't do."""

    tried: int
    through: list[str]
    cannot: list[str]


async def prove(sandbox: Sandbox, session: Callable[[str], ForkedSession], zygote: Callable[[], int]) -> None:
    """Raises Unusable with the reasons, where the sandbox's sessions aren't confined or can't be used. `session` has
    them by name, and `zygote` is the process that they are forked from.
    """
    try:
        await sandbox.open(TRIED, TENANT, LIMITS)
        folder = (await sandbox.open(TRYING, TENANT, LIMITS)).folder
        try:
            reasons = await _reasons(sandbox, session(TRIED), zygote(), folder)
        finally:
            await sandbox.close(TRYING)
            await sandbox.close(TRIED)
    except (Full, SessionGone) as error:
        reasons = [str(error)]
    if reasons:
        more = f" and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
        raise Unusable(f"{'; '.join(reasons[:MAX_REASONS])}{more}")


async def _reasons(sandbox: Sandbox, tried: ForkedSession, zygote: int, folder: str) -> list[str]:
    reasons: list[str] = []
    await sandbox.run(TRIED, "remember", "kept = 6 * 7")
    with _around(tried.pid, reasons) as (secret, place):
        threads = THREADS if tried.uid is not None else 0
        pids = [os.getpid(), zygote, tried.pid]
        asked = f"{folder!r}, {secret!r}, {place!r}, [{str(tried.folder)!r}], {pids!r}, {threads}"
        code = await asyncio.to_thread(ATTEMPTS.read_text)
        reasons += _judge(await sandbox.run(TRYING, "try", f"{code}\nprint(report({asked}))\n"))
    try:
        kept = (await sandbox.run(TRIED, "recall", "kept")).logs
    except SessionGone:
        kept = ""
    if kept != "42\n":
        reasons.append("another session was changed")
    return reasons


@contextmanager
def _around(pid: int, reasons: list[str]) -> Generator[tuple[str, str]]:
    """The targets of a session that isn't confined: a file and a socket for everybody, by their paths, and a process.
    The traces that the block left are added to the `reasons`.
    """
    heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with tempfile.TemporaryDirectory(prefix="harmonium-proof-") as name, heard:
        folder, secret, place = Path(name), Path(name, "secret"), f"{name}/socket"
        secret.write_bytes(SECRET)
        heard.setblocking(False)
        heard.bind(place)
        for path in (folder, *folder.iterdir()):
            path.chmod(0o777)
        before = _state(pid, secret)
        yield str(secret), place
        if _state(pid, secret) != before:
            reasons.append("another process or file was changed")
        if sorted(path.name for path in folder.iterdir()) != ["secret", "socket"]:
            reasons.append("files were made outside of a session's folder")
        with suppress(BlockingIOError):  # there is none
            heard.recv(1)
            reasons.append("a message got out")


def _state(pid: int, file: Path) -> tuple[object, ...]:
    """The state of a process and a file that a session could change; empty where one is gone."""
    if not (file.exists() and Path(f"/proc/{pid}").exists()):
        return ()
    process = Path(f"/proc/{pid}/limits").read_text(), os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid)
    found = file.stat()
    return *process, file.read_bytes(), found.st_mode, found.st_mtime_ns, found.st_nlink


def _judge(cell: Cell) -> list[str]:
    """The faults by a session's own account."""
    if cell.ended != "ok":
        last = cell.logs.strip().splitlines()[-1:] or [""]
        return [f"the attempts ended early ({cell.ended}): {last[0][:200]}"]
    try:
        report = msgspec.json.decode(cell.logs, type=ProofReport)
    except msgspec.DecodeError:
        return ["the attempts didn't report their results"]
    reasons = [f"a session can: {name}" for name in report.through]
    reasons += [f"a session can't {name}" for name in report.cannot]
    if report.tried < LEAST_ATTEMPTS:
        reasons.append(f"only {report.tried} attempts were made")
    return reasons
