"""Waiting for a condition with a deadline, in threads and in asyncio. Never sleep for a guess instead.

A condition is called again and again until what it returns is `wanted`: true, unless told otherwise. An exception of
`passing` means: not yet. Who waits in vain is told `otherwise`, or else
the condition's source, and what it returned last.
"""

import asyncio
import inspect
import linecache
import time
from collections.abc import Callable
from typing import Any

POLL_SECONDS = 0.005
MOST_POLL_SECONDS = 0.05
"""How long a wait pauses between two calls: at least, and at most, where a call asks a whole service."""

PAUSE_PART = 4
"""How many times as long as a call the pause behind it is, within these bounds."""

SECONDS = 25.0
"""How long a wait lasts, unless told otherwise: less than a lease in tests, whose end brings about much by itself."""

Exceptions = type[Exception] | tuple[type[Exception], ...]


def wait_until(
    condition: Callable[[], Any],
    seconds: float = SECONDS,
    otherwise: str = "",
    *,
    wanted: Callable[[Any], object] = bool,
    passing: Exceptions = (),
) -> Any:
    """What `condition()` returns, as soon as it is wanted. Raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while True:
        found: Any
        began = time.monotonic()
        try:
            if wanted(found := condition()):
                return found
        except passing as error:
            found = error
        _check(deadline, condition, seconds, otherwise, found)
        time.sleep(_pause(time.monotonic() - began))


async def until(
    condition: Callable[[], Any],
    seconds: float = SECONDS,
    otherwise: str = "",
    *,
    wanted: Callable[[Any], object] = bool,
    passing: Exceptions = (),
) -> Any:
    """`wait_until` for asyncio: others run meanwhile, and what `condition()` returns may have to be awaited."""
    deadline = time.monotonic() + seconds
    while True:
        found: Any
        began = time.monotonic()
        try:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if wanted(found):
                return found
        except passing as error:
            found = error
        _check(deadline, condition, seconds, otherwise, found)
        await asyncio.sleep(_pause(time.monotonic() - began))


def _check(deadline: float, condition: Callable[[], Any], seconds: float, otherwise: str, found: object) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError(f"{otherwise or _source(condition)} within {seconds:g} s, but last: {found!r}") from (
            found if isinstance(found, Exception) else None
        )


def _pause(took: float) -> float:
    return min(MOST_POLL_SECONDS, max(POLL_SECONDS, PAUSE_PART * took))


def _source(condition: Callable[[], Any]) -> str:
    """Where a condition stands, and its first line."""
    code = getattr(condition, "__code__", None)
    if code is None:
        return f"not {condition!r}"
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return f"{code.co_filename}:{code.co_firstlineno}: not `{line}`"
