"""Conditions of a server that an error of Redis shows: no primary, no writes, no room; with advice for each.

redis-py has a class for some of Redis's error codes, and for the others leaves the code at the beginning of the
message. Never judge an error by more of its message than its code: servers word it differently.

An operation that fails while others succeed says little about the server. So it is away once an operation has failed
and none has succeeded since that one began. It is back with the next success; if it refused to write, with the next
write; if writes were not safe in time, with the next one that is. Never ask the server from here.
"""

import time

from redis import exceptions as redis_errors

from store.errors import StoreBarred, StoreReadOnly, StoreUnavailable, StoreUnconfirmed
from store.watcher import Watcher

_REFUSES_WRITES = ("NOREPLICAS", "MISCONF")
"""The codes of a primary that takes no writes: too few replicas follow it, or it can't save its data."""


class NotPrimary(redis_errors.ConnectionError):
    """A connection leads to a server that is no primary. A retry may help, as it takes another one."""


class Unwelcome(redis_errors.ConnectionError):
    """The server ended a new connection before the first command: it has as many as it accepts, and these go on."""


def ended(failure: Exception) -> bool:
    """Whether a server ended a new connection, and not for a reason of its own, such as a wrong password."""
    begun = isinstance(failure.__context__, ConnectionResetError | BrokenPipeError | None)
    return begun and type(failure) is redis_errors.ConnectionError


def misled(refusal: redis_errors.ResponseError) -> bool:
    """Whether a connection leads to a server that is not, or no longer, the primary."""
    by_class = isinstance(refusal, redis_errors.ReadOnlyError | redis_errors.MasterDownError)
    return by_class or str(refusal).startswith("UNBLOCKED")


def refuses_writes(error: BaseException) -> bool:
    """Whether the server refused to write, and may still be read."""
    return isinstance(error, NotPrimary) or str(error).startswith(_REFUSES_WRITES)


def could_not_save(failure: BaseException) -> bool:
    """Whether a server refused a write because it could not write its append-only file."""
    reason = str(failure.__cause__)
    return reason.startswith("MISCONF") and "AOF" in reason


_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (NotPrimary, "It is a replica: let the address lead to the primary."),
    (redis_errors.AuthenticationError, "It refuses the user or the password: check those in the URL."),
    (redis_errors.NoPermissionError, "The user lacks rights: give it those that it needs."),
    (redis_errors.BusyLoadingError, "It is loading its data: wait."),
    (Unwelcome, "It accepts no more connections: raise its maxclients, or let each process open fewer."),
    (redis_errors.OutOfMemoryError, "It has no memory left: raise its maxmemory."),
)
_ADVICE_BY_CODE = {
    "NOREPLICAS": "Too few replicas follow it: start them, or lower its min-replicas-to-write.",
    "MISCONF": "It can't save to its disk: make room there, and see its log.",
}


def advice(error: BaseException) -> str:
    by_class = (words for kind, words in _ADVICE if isinstance(error, kind))
    by_code = (words for code, words in _ADVICE_BY_CODE.items() if str(error).startswith(code))
    return next(by_class, next(by_code, "Check that it runs and can be reached."))


class ServerHealth:
    """The known health of a server."""

    def __init__(self, watcher: Watcher) -> None:
        self.barred: str | None = None
        """Why this process must not use the server at all; None while it may."""
        self._away: StoreUnavailable | None = None
        self._watcher = watcher
        self._since = 0.0
        self._answered = -1.0
        self._wrote = -1.0
        self._confirmed = -1.0

    @property
    def away(self) -> StoreUnavailable | None:
        """The error for which the server can't be used, as far as is known; None while it can."""
        return StoreBarred(self.barred) if self.barred else self._away

    def succeeded(self, *, wrote: bool, confirmed: bool = False) -> None:
        """Note an operation that ended well; `confirmed` says whether its writes are as safe as the settings ask."""
        now = self._answered = time.monotonic()
        if wrote:
            self._wrote = now
        if confirmed:
            self._confirmed = now
        unconfirmed, failure = isinstance(self._away, StoreUnconfirmed), self._away
        is_back = confirmed if unconfirmed else wrote or not isinstance(failure, StoreReadOnly)
        if failure is not None and is_back:
            self._away = None
            self._watcher.back(now - self._since, failure)

    def note(self, failure: StoreUnavailable, why: str, begun: float) -> None:
        """Note the failure of an operation that began at `begun`, by the monotonic clock."""
        self._watcher.failed(why)
        last = self._answered
        if isinstance(failure, StoreReadOnly):
            last = self._wrote
        elif isinstance(failure, StoreUnconfirmed):
            last = self._confirmed
        if self._away is None and last < begun:
            self._away, self._since = failure, time.monotonic()
            self._watcher.gone(failure)
