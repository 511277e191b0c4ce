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
"""How long a wait pauses between two calls: at first, and after a second, as a condition may ask a whole service."""

SECONDS = 20.0

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
    begun = time.monotonic()
    while True:
        found: Any
        try:
            if wanted(found := condition()):
                return found
        except passing as error:
            found = error
        time.sleep(_pause(begun, condition, seconds, otherwise, found))


async def until(
    condition: Callable[[], Any],
    seconds: float = SECONDS,
    otherwise: str = "",
    *,
    wanted: Callable[[Any], object] = bool,
    passing: Exceptions = (),
) -> Any:
    """`wait_until` for asyncio: others run meanwhile, and what `condition()` returns may have to be awaited."""
    begun = time.monotonic()
    while True:
        found: Any
        try:
            found = condition()
            if inspect.isawaitable(found):
                found = await found
            if wanted(found):
                return found
        except passing as error:
            found = error
        await asyncio.sleep(_pause(begun, condition, seconds, otherwise, found))


def _pause(begun: float, condition: Callable[[], Any], seconds: float, otherwise: str, found: object) -> float:
    """How long to pause before the next call. Raises TimeoutError."""
    waited = time.monotonic() - begun
    if waited > seconds:
        raise TimeoutError(f"{otherwise or _source(condition)} within {seconds:g} s, but last: {found!r}") from (
            found if isinstance(found, Exception) else None
        )
    return min(MOST_POLL_SECONDS, max(POLL_SECONDS, waited * MOST_POLL_SECONDS))


def _source(condition: Callable[[], Any]) -> str:
    """Where a condition stands, and its first line."""
    code = getattr(condition, "__code__", None)
    if code is None:
        return f"not {condition!r}"
    line = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    return f"{code.co_filename}:{code.co_firstlineno}: not `{line}`"
