"""Drives work that yields between its steps, and takes the CPU time of each, which a busy machine makes no longer."""

import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def timed_steps(steps: Generator[None, None, T]) -> tuple[T, list[float]]:
    """What `steps` returns in the end, and the seconds of CPU that each of them took."""
    seconds: list[float] = []
    while True:
        began = time.thread_time()
        try:
            next(steps)
        except StopIteration as end:
            return end.value, [*seconds, time.thread_time() - began]
        seconds.append(time.thread_time() - began)
