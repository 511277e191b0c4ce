"""Ends a process whose event loop stands still, so that it is started again and others take over its responses.

A call into C that doesn't return holds Python's lock: no thread runs any more, and no handler of a signal either, so
that not even SIGTERM ends the process. The kernel still counts. It sends SIGPROF once the process has used so many
seconds of processor time and the loop has not set the timer anew; the log then says where Python stood. Time in which
a process was frozen, or waited for a disk, doesn't count.
"""

import asyncio
import faulthandler
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from service.settings.settings import Settings

STDERR = 2
"""Its file: whatever stands in its place in Python, the kernel's signal is answered without it."""

BEAT_SECONDS = 0.25
"""How often the loop says that it runs."""


@asynccontextmanager
async def watched(settings: Settings) -> AsyncGenerator[None]:
    """Until the end of the block this process ends where its loop stands still for `stall_seconds`."""
    faulthandler.register(signal.SIGPROF, file=STDERR, all_threads=False, chain=True)
    beating = asyncio.create_task(_beat(_seconds(settings)))
    try:
        yield
    finally:
        beating.cancel()
        signal.setitimer(signal.ITIMER_PROF, 0)


def _seconds(settings: Settings) -> float:
    """The processor time until the end. It is that of all threads, of which vLLM has one for each core."""
    return settings.stall_seconds * (len(os.sched_getaffinity(0)) if settings.engine == "vllm-local" else 1)


async def _beat(seconds: float) -> None:
    while True:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        await asyncio.sleep(BEAT_SECONDS)
