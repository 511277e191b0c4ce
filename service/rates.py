"""How soon something that is taken comes free again, by what came free in the last minute: what Retry-After says."""

import math
from collections import deque
from collections.abc import Callable
from time import monotonic

WINDOW_SECONDS = 60
"""How far back is looked."""

LEAST_SECONDS, MOST_SECONDS = 1, 60
"""What is told at least and at most: the SDKs wait for as long as they are told, up to a minute."""


class Rate:
    """How much of something came free, second by second, while any of it was taken."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._taken = 0
        self._since = 0.0
        """Since when some of it has been taken."""
        self._freed = deque[tuple[int, int]](maxlen=WINDOW_SECONDS + 1)
        """Seconds in which some came free, and how much."""

    def take(self, amount: int) -> None:
        """So much is taken."""
        if not self._taken:
            self._since = self._clock()
            self._freed.clear()
        self._taken += amount

    def free(self, amount: int) -> None:
        """So much is free again."""
        self._taken -= amount
        second = int(self._clock())
        if self._freed and self._freed[-1][0] == second:
            amount += self._freed.pop()[1]
        self._freed.append((second, amount))

    def seconds_for(self, amount: int) -> int:
        """In how many seconds so much more will have come free; as long again as nothing has, if nothing has."""
        now = self._clock()
        since = max(self._since, now - WINDOW_SECONDS)
        freed = sum(each for second, each in self._freed if second >= int(since))
        seconds = (now - since) * (amount / freed if freed else 1)
        return min(max(math.ceil(seconds), LEAST_SECONDS), MOST_SECONDS)
