"""One session from outside: its channel, its cells one after the other, its interrupts and its end.

A cell waits for those before it and runs. It is interrupted when its time is up or nobody wants it any more. It is
killed with its session when it doesn't heed that, or a look finds more on the disk than it may take. A stranger makes
the bytes on the channel: a frame has a bound, and bytes that are no frame end the session.
"""

import asyncio
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from service.features.sandbox.folder import Content, SeenFile, look, nameless, stopped
from service.features.sandbox.inside.cells import LENGTH, MAX_IMAGE_BYTES, MAX_IMAGES
from service.features.sandbox.port import FOLDER, Cell, Ended, Full, Image, SessionGone, SessionLimits, Unusable

MAX_CODE_BYTES = 1 << 20
MAX_WAITING = 16
"""Cells of one session that wait for another."""

CELLS_KEPT = 32
"""Calls whose Cell is known when it is asked for again; images are kept of the last one."""

GRACE_SECONDS, DEATH_SECONDS = 5.0, 5.0
"""How long an interrupted cell may take to end, and the kernel to bury a session."""

THREADS = 64
"""Threads that a session may have. Where all sessions have one user, they share as many for each place of the sandbox,
beyond those that the user had when the zygote began.
"""

FIRST_CELL_SECONDS = 10.0
"""For how long a session that nobody uses waits for its first cell before it counts as idle."""

READY_SECONDS, SILENCE_SECONDS = 10.0, 3.0
"""How long a new session may take to say that it is confined, and to end by itself after the end of its channel."""

STOP_SECONDS, STOP_POLL_SECONDS = 5.0, 0.0005
"""How long the kernel may take to stop a session's threads, and how often it is asked whether it has."""

LOOKING = ThreadPoolExecutor(2, "sandbox-look")
"""Threads of this process that look at sessions. Sessions decide how long that takes: nothing else waits for them."""

Found = TypeVar("Found")

FRAME_SLACK = 4096
PNG = b"\x89PNG\r\n\x1a\n"
ESCAPED = 6
"""The most bytes that a character has in JSON, as in `\\u0000`."""

MAX_FILES_TOLD = 100
"""Files that a Cell names; those that were written last."""

SIGNALS: dict[int, str] = {
    signal.SIGKILL: "it took more processor time than it may, or the machine had no memory left",
    signal.SIGXCPU: "it took more processor time than it may",
    signal.SIGSYS: "it made a call that no program of this machine makes",
    signal.SIGSEGV: "Python crashed",
    signal.SIGABRT: "Python crashed",
}
"""The likely causes of a session's death."""


class CellReply(msgspec.Struct, frozen=True):
    """The reply of a session to a cell."""

    raised: bool
    logs: str
    images: tuple[int, ...] = ()
    """How many bytes each of the figures has that come behind it."""


class Ready(msgspec.Struct, frozen=True):
    """The session's first message, also sent when it has forgotten an interrupt."""

    ready: bool = False
    failed: str = ""


class ForkedSession:
    """A session that has been forked."""

    def __init__(self, tenant: str, limits: SessionLimits, home: Path, uid: int | None) -> None:
        """`home` has its folders, `uid` is its user where that is its own."""
        self.tenant, self.limits, self.home, self.uid = tenant, limits, home, uid
        self.lasting = False
        """Whether it gives its place up only after those that aren't."""
        self.folder = home / "data"
        self.used_at = asyncio.get_running_loop().time()
        self._died: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        """How its process ended, as `os.waitstatus_to_exitcode` has it; None where nobody saw it."""
        self.pid, self._process = 0, -1
        self._turn = asyncio.Lock()
        self._running: dict[str, tuple[asyncio.Task[Cell], asyncio.Event]] = {}
        """Calls that run or wait, each with the event that nobody wants it any more."""
        self._cells: deque[tuple[str, Cell]] = deque(maxlen=CELLS_KEPT)
        self.known: dict[str, SeenFile] = {}
        """Its files as they were when its last cell ended, or when somebody else wrote them."""
        self.outside_bytes = 0
        """The bytes that others ever wrote to its files; several may write at once."""
        self.why = ""
        """Why it was killed, where that was our doing."""
        self.gone = asyncio.Event()
        """Set when nothing of it is left."""

    async def connect(self, channel: socket.socket) -> None:
        """Wait until it is ready. Raises Unusable, with nothing of it left, where it can't be."""
        self._reader, self._writer = await asyncio.open_connection(sock=channel)
        try:
            async with asyncio.timeout(READY_SECONDS):
                said = msgspec.json.decode(await self._frame(), type=Ready)
            reason = "" if said.ready else said.failed or "a session didn't report itself"
        except TimeoutError:
            reason = f"a session was not ready within {READY_SECONDS:g} s"
        except (asyncio.IncompleteReadError, OSError, ValueError):
            reason = "a session ended at once"
        if reason:
            self.kill(reason)
            await self.wait_for_end()
            raise Unusable(reason)

    def wait_for_birth(self, pid: int, process: int) -> None:
        """Its process, and the file that stands for it. It may have been killed already."""
        self.pid, self._process = pid, process
        if self.why:
            self._send(signal.SIGKILL)

    def die(self, status: int | None) -> None:
        """Note that its process has ended."""
        if self._process >= 0:
            os.close(self._process)
            self._process = -1
        if not self._died.done():
            self._died.set_result(status)

    @property
    def alive(self) -> bool:
        """Whether its process hasn't ended, and nobody has killed it."""
        return not self._died.done() and not self.why

    @property
    def busy(self) -> bool:
        """Whether a cell runs or waits."""
        return bool(self._running)

    @property
    def idle(self) -> bool:
        """Whether nobody would miss its place: no cell runs or waits, nor is the first one about to."""
        waits = not self._cells and asyncio.get_running_loop().time() - self.used_at < FIRST_CELL_SECONDS
        return self.alive and not self.busy and not waits

    async def run(self, call: str, code: str) -> Cell:
        """The Cell of a call, which runs now unless it has before. Raises Full and SessionGone."""
        for known, cell in self._cells:
            if known == call:
                return cell
        if call not in self._running:
            if not self.alive:
                raise SessionGone("the session has ended")
            if sum(not unwanted.is_set() for _, unwanted in self._running.values()) > MAX_WAITING:
                raise Full(f"{MAX_WAITING} cells of this session wait already")
            unwanted = asyncio.Event()
            self._running[call] = asyncio.create_task(self._in_turn(call, code, unwanted)), unwanted
        task, unwanted = self._running[call]
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            unwanted.set()
            raise

    def stop(self, call: str) -> None:
        """Stop a call that nobody wants any more. Its `run` may come only later: nobody keeps the two in order."""
        if call in self._running:
            self._running[call][1].set()
        elif not any(known == call for known, _ in self._cells):
            self._cells.append((call, Cell("stopped")))

    def kill(self, why: str) -> None:
        """End it, whatever it does."""
        self.why = self.why or why
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)

    def touch(self) -> None:
        """Note that somebody uses it."""
        self.used_at = asyncio.get_running_loop().time()

    async def wait_for_end(self) -> None:
        """Wait until its process is no more and all calls have their Cell."""
        await asyncio.wait([self._died])
        if self._running:
            await asyncio.wait([task for task, _ in self._running.values()])
        self._writer.close()

    async def look(self) -> float:
        """Kill it where it takes more of the disk than it may. Returns the processor time of the look, in seconds."""

        def time_content() -> tuple[Content, float]:
            begun = time.thread_time()
            return self.content(), time.thread_time() - begun

        try:
            content, took = await looking(time_content)
        except (OSError, ValueError):
            await asyncio.wait([self._died], timeout=SILENCE_SECONDS)
            if self.alive:
                self.kill("it can't be inspected")
            return 0
        if reason := self._excess(content):
            self.kill(reason)
        return took

    def content(self) -> Content:
        """The content of its folder, with the bytes of the disk that it takes altogether. Blocks."""
        content, *others = (look(self.home / name, self.limits.files) for name in ("data", "tmp"))
        others.append(nameless(self.pid, self.uid, self.home, self.limits.disk_bytes))
        return content._replace(
            disk_bytes=content.disk_bytes + sum(other.disk_bytes for other in others),
            over=content.over or others[0].over or others[1].over,
        )

    async def _last_content(self) -> Content:
        """As `content`, of a session that was told to stop. Raises OSError where it doesn't."""
        deadline = time.monotonic() + STOP_SECONDS
        while not await looking(stopped, self.pid):
            if time.monotonic() > deadline:
                raise OSError("a session doesn't stop")
            await asyncio.sleep(STOP_POLL_SECONDS)
        return await looking(self.content)

    async def _in_turn(self, call: str, code: str, unwanted: asyncio.Event) -> Cell:
        """Wait, run, and note the result."""
        try:
            cell = Cell("stopped")
            if await self._has_turn(unwanted):
                try:
                    cell = await self._run(code, unwanted)
                finally:
                    self._turn.release()
            earlier = [(name, msgspec.structs.replace(each, images=())) for name, each in self._cells]
            self._cells.extend([*earlier, (call, cell)][-CELLS_KEPT:])
            return cell
        finally:
            del self._running[call]
            self.touch()

    async def _has_turn(self, unwanted: asyncio.Event) -> bool:
        """Wait for the turn; False, without it, where nobody wants the cell any more."""
        turn, stopping = asyncio.create_task(self._turn.acquire()), asyncio.create_task(unwanted.wait())
        await asyncio.wait([turn, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not unwanted.is_set():
            stopping.cancel()
            return True
        if turn.done():
            self._turn.release()
        turn.cancel()
        return False

    async def _run(self, code: str, unwanted: asyncio.Event) -> Cell:
        if not self.alive:
            return await self._last_cell()
        body = msgspec.json.encode({"code": code.encode("utf-8", "replace").decode()})
        if len(body) > MAX_CODE_BYTES:
            return Cell("raised", f"The code of a cell may have {MAX_CODE_BYTES:,} bytes as JSON, not {len(body):,}.\n")
        if self._writer.transport.get_write_buffer_size():
            self.kill("it answered for a cell without having read it")
            return await self._last_cell()
        self._send(signal.SIGCONT)
        self._writer.write(LENGTH.pack(len(body)) + body)
        answer = asyncio.create_task(self._answer())
        try:
            ended = await self._watch(answer, unwanted)
            said, images = await answer
            if ended != "ok":  # have it forget an interrupt that came when the cell had just ended
                self._writer.write(LENGTH.pack(2) + b"{}")
                async with asyncio.timeout(GRACE_SECONDS):
                    if not msgspec.json.decode(await self._frame(), type=Ready).ready:
                        raise ValueError("it is not ready")
            return await self._end_cell("raised" if ended == "ok" and said.raised else ended, said.logs, images)
        except (asyncio.IncompleteReadError, OSError):
            await asyncio.wait([self._died], timeout=SILENCE_SECONDS)
            if self.alive:
                self.kill("it closed its channel, or can't be inspected")
        except (ValueError, RecursionError):
            self.kill("it sent an invalid message")
        finally:
            answer.cancel()
        return await self._last_cell()

    async def _watch(self, answer: asyncio.Task[tuple[CellReply, tuple[Image, ...]]], unwanted: asyncio.Event) -> Ended:
        """Hold the cell to its time until there is an answer, or the session ended. Returns how the cell ended."""
        stopping = asyncio.create_task(unwanted.wait())
        await asyncio.wait({answer, stopping}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if answer.done():
            return "ok"
        ended = "stopped" if unwanted.is_set() else "timeout"
        self._send(signal.SIGINT)
        await asyncio.wait({answer}, timeout=GRACE_SECONDS)
        if not answer.done():
            self.kill(f"a cell continued for {GRACE_SECONDS:g} s after it was interrupted")
            await asyncio.wait({answer}, timeout=DEATH_SECONDS)
        if not answer.done():
            raise OSError("a session that was killed doesn't end")
        return ended

    async def _end_cell(self, ended: Ended, logs: str, images: tuple[Image, ...]) -> Cell:
        """A cell that the session outlived, unless it left too much on the disk. Nothing of it runs from here on, also
        no thread, until the next cell does: nobody would see what it takes.
        """
        self._send(signal.SIGSTOP)
        content = await self._last_content()
        if reason := self._excess(content):
            self.kill(reason)
        if self.why:
            return await self._last_cell()
        written = [path for path, seen in content.files.items() if self.known.get(path) != seen]
        written.sort(key=lambda path: content.files[path].modified_ns)
        self.known = content.files
        files = tuple(f"{FOLDER}/{path}" for path in sorted(written[-MAX_FILES_TOLD:]))
        return Cell(ended, logs[: 2 * self.limits.output_chars], images, files)

    def _excess(self, content: Content) -> str:
        """The limit that its files exceed, in words; empty where there is none."""
        if content.over:
            return f"it had {content.over}"
        if content.disk_bytes > self.limits.disk_bytes:
            return f"its files took {content.disk_bytes:,} bytes, and it may have {self.limits.disk_bytes:,}"
        return ""

    async def _last_cell(self) -> Cell:
        """The cell with which the session ended."""
        await asyncio.wait([self._died], timeout=DEATH_SECONDS)
        status = self._died.result() if self._died.done() else None
        if status is not None and status < 0:
            died_of = SIGNALS.get(-status, f"it got signal {-status}")
        else:
            died_of = "its process ended by itself"
        return Cell("lost", f"The session is lost, with its variables and files: {self.why or died_of}.\n")

    async def _answer(self) -> tuple[CellReply, tuple[Image, ...]]:
        """The session's reply to a cell, with its figures. Raises as `_frame` does, and RecursionError."""
        said = msgspec.json.decode(await self._frame(), type=CellReply)
        if len(said.images) > MAX_IMAGES or not all(0 <= count <= MAX_IMAGE_BYTES for count in said.images):
            raise ValueError("there are too many figures, or one is too large")
        figures = [await self._reader.readexactly(count) for count in said.images]
        if not all(figure.startswith(PNG) for figure in figures):
            raise ValueError("a figure is no PNG")
        return said, tuple(Image(figure) for figure in figures)

    async def _frame(self) -> bytes:
        """The next frame. Raises IncompleteReadError at the end, and ValueError for one that is too large."""
        (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
        if length > ESCAPED * 2 * self.limits.output_chars + FRAME_SLACK:
            raise ValueError("a frame is too large")
        return await self._reader.readexactly(length)


async def looking(look: Callable[..., Found], *given: object) -> Found:
    """The result of a look at a session, taken in a thread."""
    return await asyncio.get_running_loop().run_in_executor(LOOKING, look, *given)
