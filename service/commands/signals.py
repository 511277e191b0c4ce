"""Signals: what asks a process to stop, to stop at once, or to end with its parent.

The first Ctrl-C lets open streams finish, the second one cuts them off: their responses are stored as they are, and the
process ends as it does otherwise. With several workers the terminal's Ctrl-C is for the supervisor alone, which tells
them. Nothing here may know a route or a request.

A process whose event loop stands still ends too (`watching_loop`), so that it is started again and others take over its
responses. A call into C that doesn't return holds Python's lock: no thread runs any more, and no handler of a signal
either, so that not even SIGTERM ends the process. The kernel still counts. It sends SIGPROF once the process has used
so many seconds of processor time and the loop has not set the timer anew; the log then says where Python stood. Time
in which a process was frozen, or waited for a disk, doesn't count.
"""

import asyncio
import ctypes
import faulthandler
import logging
import os
import signal
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from multiprocessing import parent_process, resource_tracker
from types import FrameType

from starlette.types import ASGIApp, Receive, Scope, Send

from service.settings.core import CoreSettings
from service.web.stopping import HANG_UP, STOP_SIGNALS

HURRY = signal.SIGUSR1
"""The signal for a stopping process at the second Ctrl-C: it cuts off all that is still open."""

PR_SET_PDEATHSIG = 1

STDERR = 2
"""Its file descriptor: the kernel's signal is answered without Python's `sys.stderr`."""

STALL_SECONDS = 15.0
"""The processor time after which a process ends whose loop stands still, so that others take over."""

BEAT_SECONDS = 0.25


def exit_on_signals(*, rereads: bool = False) -> None:
    """Turn SIGTERM and SIGINT into SystemExit(0), once: while the process stops, more do nothing.

    uvicorn takes the signals over while it serves, and raises the one it stopped for again when it is done. With
    `rereads`, a SIGHUP waits until somebody can read keys again.
    """

    def leave(received: int, frame: FrameType | None) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        if parent_process() is not None:
            logging.disable()  # a worker that serves nothing, whose half made parts would complain
        raise SystemExit(0)

    def hang_up(received: int, frame: FrameType | None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)  # to whoever handles it at the moment

    for each in STOP_SIGNALS:
        signal.signal(each, leave)
    signal.signal(HANG_UP, hang_up)
    if rereads:
        signal.pthread_sigmask(signal.SIG_BLOCK, {HANG_UP})
    signal.signal(HURRY, signal.SIG_IGN)  # until something can be cut off


def be_interruptible() -> None:
    """Have a Ctrl-C raise KeyboardInterrupt again, where there is something to clean up."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def spared_of_interrupts() -> Generator[None]:
    """Processes started within the block never get a terminal's Ctrl-C, nor its end until they can read keys again.

    A signal that comes meanwhile waits for the end of the block.
    """
    resource_tracker.ensure_running()  # which would unblock the signals where it is started with the first of them
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, HANG_UP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, HANG_UP})


def die_with_parent() -> None:
    """Have the kernel send this process SIGTERM when its parent dies. Only Linux has this."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    parent = parent_process()
    if parent is not None and os.getppid() != parent.pid:  # it went before the kernel was asked to watch
        os.kill(os.getpid(), signal.SIGTERM)


class OpenApplication:
    """An application that knows what it has open, and can cut it off."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[object]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        assert task is not None, "an application runs in a task"
        self._tasks.add(task)
        try:
            await self._app(scope, receive, send)
        finally:
            self._tasks.discard(task)

    @contextmanager
    def hurrying(self) -> Generator[None]:
        """Within the block, HURRY cuts off what is open."""
        loop = asyncio.get_running_loop()
        signal.signal(HURRY, lambda number, frame: loop.call_soon_threadsafe(self._cut_off))
        try:
            yield
        finally:
            signal.signal(HURRY, signal.SIG_IGN)

    def _cut_off(self) -> None:
        tasks, self._tasks = self._tasks, set()  # each once: what it does then is to come to its end
        for task in tasks:
            task.cancel()


@asynccontextmanager
async def watching_loop(settings: CoreSettings) -> AsyncGenerator[None]:
    """Until the end of the block this process ends where its loop stands still for STALL_SECONDS."""
    faulthandler.register(signal.SIGPROF, file=STDERR, chain=True)  # of all threads: any may get the signal
    threads = len(os.sched_getaffinity(0)) if settings.engine == "vllm-local" else 1  # all of them count

    async def beat() -> None:
        while True:
            signal.setitimer(signal.ITIMER_PROF, STALL_SECONDS * threads)
            await asyncio.sleep(BEAT_SECONDS)

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
        signal.setitimer(signal.ITIMER_PROF, 0)
