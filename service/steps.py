"""Work in steps: a generator that yields between pieces of at most a few milliseconds and returns its result.

Pure code can't await, and must not stall the event loop either; so its caller decides what happens in between.
Only loops over items, tools, messages and rules yield; what they call for one of these is a plain function.
"""

import asyncio
from collections.abc import Callable, Generator, Hashable
from contextvars import ContextVar
from functools import lru_cache
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")
Work = Callable[..., Generator[None, None, T]]


def in_one_go(work: Generator[None, None, T]) -> T:
    """The result of work that is known to be short."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def cached_steps(maxsize: int) -> Callable[[Work[T]], Work[T]]:
    """`functools.lru_cache` for work in steps: the results of the `maxsize` arguments that were used last.

    The cache holds a place for each result; the first caller to finish the work fills it in. Errors aren't cached.
    """

    def decorate(work: Work[T]) -> Work[T]:
        place = lru_cache(maxsize)(lambda *_: list[T]())

        def steps(*arguments: Hashable) -> Generator[None, None, T]:
            found = place(*arguments)
            if not found:
                found.append((yield from work(*arguments)))
            return found[0]

        return steps

    return decorate


BRIEFLY = 1e-6

SHORT_SECONDS = 0.00025
"""How long steps may take together until others run; a pause costs some ten microseconds."""

pause_after: ContextVar[Callable[[float], float] | None] = ContextVar("pause_after", default=None)
"""The seconds for which a task lets others run after a step that took so many; BRIEFLY by default."""


async def in_steps(work: Generator[None, None, T]) -> T:
    """Run a generator to its end, letting others run between its steps, unless those so far were short.

    A sleep of 0 would queue before the timers that are due by then; this short one queues behind them.
    """
    pause = pause_after.get()
    began = perf_counter()
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        if (took := perf_counter() - began) > SHORT_SECONDS:
            await asyncio.sleep(BRIEFLY if pause is None else pause(took))
            began = perf_counter()
