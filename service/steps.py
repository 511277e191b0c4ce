"""Work in steps: a generator that yields between pieces of at most a few milliseconds and returns its result.

Pure code can't await, and must not stall the event loop either; so whoever drives it decides what happens in between.
"""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def in_one_go(work: Generator[None, None, T]) -> T:
    """The result of work that is known to be short."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


BRIEFLY = 1e-6
"""Seconds."""


async def in_steps(work: Generator[None, None, T]) -> T:
    """Run a generator to its end, letting others run between its steps.

    A sleep of 0 would queue before the timers that are due by then; this short one queues behind them.
    """
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        await asyncio.sleep(BRIEFLY)
