"""The signals to a process that serves: to stop, or to read its keys and engines again.

Background work stops at the moment of the signal: a server that waits for open streams first would do so too late. A
worker that stops hands back its jobs, so that others go on at once. SIGHUP has two meanings: files of keys or
engines were changed, or the terminal was closed, which asks for the same as SIGTERM.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from types import FrameType

from service.settings.keys import Keys

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

HANG_UP = signal.SIGHUP
"""A terminal that was closed, or files that were changed."""


@contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Generator[None]:
    """Within the block, have `stop` called in the running loop on SIGTERM or SIGINT, before the handler that is set.

    Signals come to the main thread alone; in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:  # what the system does with it
            signal.signal(number, handler)
            signal.raise_signal(number)

    for number in STOP_SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is on_signal:
                signal.signal(number, handler)


class StartTerminal:
    """The terminal at which a process was started, if it was."""

    def __init__(self) -> None:
        self._there = sys.stderr.isatty()

    @property
    def gone(self) -> bool:
        return self._there and not sys.stderr.isatty()


@contextmanager
def rereading(keys: Keys, then: Callable[[bool], Awaitable[None]]) -> Generator[None]:
    """Within the block, read `keys` again on SIGHUP, where they are in files and no terminal was closed; `then` is told
    whether they were taken.

    A SIGHUP that was blocked until now is answered at once.
    """
    if not keys.rereads or threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, terminal, reading = asyncio.get_running_loop(), StartTerminal(), set[asyncio.Task[None]]()

    one_by_one = asyncio.Lock()

    async def read_again() -> None:
        async with one_by_one:
            await then(await asyncio.to_thread(keys.read_again))

    def read() -> None:
        task = asyncio.create_task(read_again())
        reading.add(task)
        task.add_done_callback(reading.discard)

    def on_signal(number: int, frame: FrameType | None) -> None:
        if terminal.gone:
            os.kill(os.getpid(), signal.SIGTERM)  # to whoever handles it at the moment
        else:
            loop.call_soon_threadsafe(read)

    before = signal.signal(HANG_UP, on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {HANG_UP})
    try:
        yield
    finally:
        signal.signal(HANG_UP, before)
