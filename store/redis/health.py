"""The server's health, as the operations of this process find it: callbacks run once for each change.

An operation that fails while others succeed says little about the server. So it is away once an operation has failed
and none has succeeded since that one began. It is back with the next success; if it refused to write, with the next
write; if writes were not safe in time, with the next one that is. Never ask the server from here.
"""

import time
from collections.abc import Callable

from store.errors import StoreReadOnly, StoreUnavailable, StoreUnconfirmed


class Health:
    """The known health of a server. Set the callbacks before the first operation."""

    def __init__(self) -> None:
        self.away: StoreUnavailable | None = None
        """The error for which the server can't be used, as far as is known; None while it can."""
        self.failed: Callable[[str], None] = lambda why: None
        """Called for all that raises StoreUnavailable, with the reason: `timeout`, `error` or `unconfirmed`."""
        self.took: Callable[[float], None] = lambda seconds: None
        """Called for each operation that ended well, with its seconds, its wait for a connection included."""
        self.gone: Callable[[StoreUnavailable], None] = lambda failure: None
        """Called when the server goes away."""
        self.back: Callable[[float, StoreUnavailable], None] = lambda seconds, failure: None
        """Called when it is back, with the seconds that it was away, and the reason."""
        self._since = 0.0
        self._answered = -1.0
        self._wrote = -1.0
        self._confirmed = -1.0

    def succeeded(self, *, wrote: bool, confirmed: bool = False) -> None:
        """Note an operation that ended well; `confirmed` says whether its writes are as safe as the settings ask."""
        now = self._answered = time.monotonic()
        if wrote:
            self._wrote = now
        if confirmed:
            self._confirmed = now
        if self.away is not None and self._is_back(wrote=wrote, confirmed=confirmed):
            failure, self.away = self.away, None
            self.back(now - self._since, failure)

    def _is_back(self, *, wrote: bool, confirmed: bool) -> bool:
        """Whether an operation shows that the server is back."""
        if isinstance(self.away, StoreUnconfirmed):
            return confirmed
        return wrote or not isinstance(self.away, StoreReadOnly)

    def note(self, failure: StoreUnavailable, why: str, begun: float) -> None:
        """Note the failure of an operation that began at `begun`, by the monotonic clock."""
        self.failed(why)
        last = self._answered
        if isinstance(failure, StoreReadOnly):
            last = self._wrote
        elif isinstance(failure, StoreUnconfirmed):
            last = self._confirmed
        if self.away is None and last < begun:
            self.away, self._since = failure, time.monotonic()
            self.gone(failure)
