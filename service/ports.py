"""The ports of features: what the core asks of each, never by its name. service/process.py has the list of features."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple


def nobody_waits(id: str) -> None:
    """Do nothing when a response has ended."""


async def as_it_is() -> None:
    """Do nothing when a process starts, or ends."""


class Chore(NamedTuple):
    """Work of a feature beside requests. `run` works until it is cancelled; a bug that ends it leaves others at work.
    `ended` is called with the id of each response that ends in this process. It never blocks. A process calls `start`
    once, and doesn't start where that raises another error than StoreUnavailable or ArchiveUnavailable; and `close` at
    its end, before the store is closed.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    ended: Callable[[str], None] = nobody_waits
    start: Callable[[], Awaitable[None]] = as_it_is
    close: Callable[[], Awaitable[None]] = as_it_is


class ReadyFinding(NamedTuple):
    """The finding of a check: whether requests may be sent to this process, and what is shown of it; None where nobody
    knows more.
    """

    usable: bool
    shown: dict[str, object] | None = None


class ReadyCheck(NamedTuple):
    """A look at a feature's dependency, for `/ready`, which shows the finding under this name. It raises nothing."""

    name: str
    look: Callable[[], Awaitable[ReadyFinding]]
