"""The ports of features: what the core asks of each, never by its name. service/process.py has the list of features."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple


def nobody_waits(id: str) -> None:
    """Do nothing when a response has ended."""


class Chore(NamedTuple):
    """Work of a feature beside requests. `run` works until it is cancelled; a bug that ends it leaves others at work.
    `ended` is called with the id of each response that ends in this process. It never blocks.
    """

    name: str
    run: Callable[[], Awaitable[None]]
    ended: Callable[[str], None] = nobody_waits
