"""An archive each of whose steps tells: before each call of the archive, and before each command that Redis gets.

What archives tells of `archiving`, what notes older trees of `noting`, and all else of `asking`; the archive's own
calls tell of `a call of archiving` besides. Whoever listens counts them, and may end the process there, or a server.
What is begun by one of them tells of the same, however many do so at once. The archive knows no such step.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from store.archive.archive import Archive
from store.backup.archiving.store_archive import StoreArchive
from store.redis.connection import Operation, Server

At = Callable[[str], Awaitable[None]]
"""Told of a step."""

ARCHIVING, NOTING, ASKING = "archiving", "noting", "asking"

CALL = "a call of "
"""What the steps of the archive's own calls begin with."""

LOADS = "FUNCTION"
"""The command that gives a server a script that it didn't have: the step is the call behind it."""

VERBS = ("get", "put", "delete", "list")

_deed: ContextVar[str] = ContextVar("deed", default=ASKING)
"""What the step is of."""


class Counted:
    """Counts the steps of a deed, and does something before the one with a number, from 1 on."""

    def __init__(self, deed: str, number: int = 0, then: Callable[[], Awaitable[None]] | None = None) -> None:
        self.steps = 0
        self._deed, self._number, self._then = deed, number, then

    async def __call__(self, step: str) -> None:
        if step == self._deed:
            self.steps += 1
            if self.steps == self._number and self._then is not None:
                await self._then()


def tell_of_steps(archive: StoreArchive, at: At) -> None:
    """Have an archive tell of its steps from now on."""
    _tell_of_calls(archive.archive, at)
    _tell_of_commands(archive.history.server, at)
    archive_due, note = archive.archive_due, archive.note
    archive.archive_due = _as_deed(ARCHIVING, archive_due)
    archive.note = _as_deed(NOTING, note)


def _as_deed(deed: str, carry_out: Callable[[], Awaitable[Any]]) -> Callable[[], Any]:
    async def told() -> Any:
        before = _deed.set(deed)
        try:
            return await carry_out()
        finally:
            _deed.reset(before)

    return told


def _tell_of_calls(archive: Archive, at: At) -> None:
    for verb in VERBS:
        setattr(archive, verb, _telling(getattr(archive, verb), at, call=True))


def _tell_of_commands(server: Server, at: At) -> None:
    begin = server.operation

    @asynccontextmanager
    async def telling(**how: Any) -> AsyncIterator[Operation]:
        async with begin(**how) as operation:
            for way in ("command", "row"):
                setattr(operation, way, _telling(getattr(operation, way), at))
            yield operation

    server.operation = telling  # type: ignore[method-assign]


def _telling(carry_out: Callable[..., Awaitable[Any]], at: At, *, call: bool = False) -> Callable[..., Awaitable[Any]]:
    async def told(*given: Any, **more: Any) -> Any:
        if given[:1] != (LOADS,):
            await at(_deed.get())
        if call:
            await at(CALL + _deed.get())
        return await carry_out(*given, **more)

    return told
