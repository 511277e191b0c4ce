"""Drives work that yields between its steps, and takes the time of each."""

import time
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def timed_steps(steps: Generator[None, None, T]) -> tuple[T, list[float]]:
    """What `steps` returns in the end, and the seconds that each of them took."""
    seconds: list[float] = []
    while True:
        began = time.perf_counter()
        try:
            next(steps)
        except StopIteration as end:
            return end.value, [*seconds, time.perf_counter() - began]
        seconds.append(time.perf_counter() - began)
