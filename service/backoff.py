"""Back-off: how long to wait before what failed is tried again, longer after each failure in a row.

redis.backoff.EqualJitterBackoff has the same formula, but draws its own random numbers; here these are passed in. Never
sleep here: the caller knows what may wake it earlier.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

MAX_DOUBLINGS = 30
"""The most doublings, as floats have an end."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double from `first` up to `most` seconds; `chance`, from 0 to 1, spreads each over its upper half."""

    first: float
    most: float
    chance: Callable[[], float] = random.random

    def seconds(self, failures: int) -> float:
        """The pause after so many failures in a row, at least one."""
        longest = min(self.most, self.first * 2 ** min(failures - 1, MAX_DOUBLINGS))
        return longest * (1 + self.chance()) / 2
