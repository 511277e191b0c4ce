"""Waiting for a condition with a deadline, in threads and in asyncio. Never sleep for a guess instead."""

import asyncio
import time
from collections.abc import Callable

POLL_SECONDS = 0.005


def wait_until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Return as soon as `condition()` is true. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {seconds} s")
        time.sleep(POLL_SECONDS)


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """`wait_until` for asyncio: others run meanwhile."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not true within {seconds} s")
        await asyncio.sleep(POLL_SECONDS)
