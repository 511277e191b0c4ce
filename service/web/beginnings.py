"""Where requests begin: few in one turn of the event loop, if there are several tenants.

Reading a request and beginning with it takes a tenth of the work for a response. If hundreds of one tenant arrived
together, one turn of the loop did that for all of them, and each other request waited. So a turn begins with AT_ONCE,
and each later turn with one of those that were left, of each tenant by turns. A tenant that is alone has no bound, as
all that is asked of the store in one turn is one write. Never let a request wait here for room or for its work:
that is for admission and pacing, which come right behind.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

AT_ONCE = 8
"""The most requests that begin in one turn of the loop, if there are several tenants."""

BEGINNINGS = "harmonium.beginnings"
"""The key of the application's state, as its lifespan yields it, that has these."""


class Beginnings:
    """The requests that are about to begin: one of each connection at most."""

    def __init__(self, several: Callable[[str], bool] = lambda _: False) -> None:
        """`several` says whether there is work of others than this tenant at the moment."""
        self._several = several
        self._begun = 0
        """How many have begun in this turn."""
        self._lines: dict[str, deque[Callable[[], None]]] = {}
        """Those that were left, by whose they are."""
        self._context = copy_context()
        """The context of no request: the tasks of those that begin later inherit it."""

    def may(self, whose: str) -> bool:
        """Whether a request may begin in this turn."""
        if not self._begun:
            self._call_turn()
        self._begun += 1
        return whose not in self._lines and (self._begun <= AT_ONCE or not self._several(whose))

    def leave(self, whose: str, begin: Callable[[], None]) -> None:
        """Call `begin` in a later turn."""
        self._lines.setdefault(whose, deque()).append(begin)

    def hurry(self) -> None:
        """Begin with all that were left."""
        while self._lines:
            self._next()

    def _call_turn(self) -> None:
        asyncio.get_running_loop().call_soon(self._turn, context=self._context)

    def _turn(self) -> None:
        self._begun = 0
        if self._lines:
            self._begun = 1
            self._call_turn()
            self._next()

    def _next(self) -> None:
        whose = next(iter(self._lines))
        line = self._lines.pop(whose)
        begin = line.popleft()
        if line:
            self._lines[whose] = line
        begin()
