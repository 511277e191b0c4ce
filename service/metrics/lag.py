"""How late the event loop is: what everybody on it waits for besides what they wait for.

One task sleeps for a short while again and again, and counts by how much it was woken later than that. Never look more
often: each look wakes a process that may have nothing to do.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic

from service.metrics.counters import Metrics

LOOK_SECONDS = 0.25
"""How often it is looked."""


@asynccontextmanager
async def lag_counted(metrics: Metrics) -> AsyncGenerator[None]:
    """Until the end of the block the lag of this loop is counted."""
    looking = asyncio.create_task(_look(metrics))
    try:
        yield
    finally:
        looking.cancel()


async def _look(metrics: Metrics) -> None:
    while True:
        began = monotonic()
        await asyncio.sleep(LOOK_SECONDS)
        metrics.loop_lag_seconds.observe(max(0.0, monotonic() - began - LOOK_SECONDS))
