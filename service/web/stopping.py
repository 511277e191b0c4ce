"""Being told to stop, at the moment of the signal: a server that waits for open streams first would say so too late.

A worker that is asked to leave hands back what it is at work on, so that others go on at once.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def on_stop_signal(stop: Callable[[], None]) -> Generator[None]:
    """Within the block, have `stop` called in the running loop on SIGTERM or SIGINT, before whoever handles them.

    Signals come to the main thread alone; in another one this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}

    def told(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        handler = before[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)
        else:  # what the system does with it
            signal.signal(number, handler)
            signal.raise_signal(number)

    for number in STOP_SIGNALS:
        signal.signal(number, told)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is told:
                signal.signal(number, handler)
