"""The values around a job: its lease, the job as it was claimed, and the limits of all jobs.

A job is a background response that hasn't ended. jobs.py has the operations.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import msgspec

from store.jobs.log import LogEntry
from store.turn import Status, Turn

GIB = 1 << 30


class Priority(IntEnum):
    """The priority of a job: of a tenant's, those with a lower number start first. 0 is for jobs that had begun.
    PRIORITY goes before other tenants' jobs as well, and jobs that have hours go behind them.
    """

    PRIORITY = 1
    DEFAULT = 2
    FLEX = 3
    WITHIN_2H = 4
    WITHIN_8H = 5


LEVELS = 1 + len(Priority)
"""The queues of a shard: one for jobs that had begun, and one for each priority (the same as in lua/queueing.lua)."""

HOUR = 3600.0

WINDOWS = {Priority.WITHIN_2H: 2 * HOUR, Priority.WITHIN_8H: 8 * HOUR}
"""The seconds within which jobs of these priorities are to end. They have the last levels: they start when all others
have.
"""

MARGIN_SECONDS = HOUR / 2
"""How long before the end of its window a job gets the priority DEFAULT, if it has not started by then."""


class Lease(msgspec.Struct, frozen=True):
    """The right to work on a job: the proof that nobody else does."""

    tenant: str
    id: str
    token: str


class Job(msgspec.Struct, frozen=True):
    """A job as it was claimed.

    `status` is in_progress, or cancelled for one that only has to be ended. `tries` counts the holders in a row that
    made no progress, with this one, and `last` is the number of the last event in its log. It was submitted
    `age_seconds` ago, somebody worked on it for `run_seconds`, and it waited for `waited_seconds` this time.
    """

    lease: Lease
    epoch: int
    status: Status
    tries: int
    last: int
    age_seconds: float
    run_seconds: float
    waited_seconds: float
    priority: Priority = Priority.DEFAULT

    @property
    def spare_seconds(self) -> float | None:
        """For how long it is still one that starts when all others have; None for one without a window."""
        window = WINDOWS.get(self.priority)
        return None if window is None else max(0.0, window - MARGIN_SECONDS - self.age_seconds)


class WaitingTenant(msgspec.Struct, frozen=True):
    """A tenant with so many jobs that wait at a level of a shard, the first of them for so many seconds."""

    tenant: str
    level: int
    jobs: int
    seconds: float


class JobClaim(msgspec.Struct, frozen=True):
    """The result of a claim: jobs, how many leases had run out, how many there are now in the shard, and the first
    level at which jobs still wait there, None where none does. A claim of no job also says which tenants are next."""

    jobs: list[Job]
    rescued: int
    running: int = 0
    first: int | None = None
    waiting: tuple[WaitingTenant, ...] = ()


class Renewal(NamedTuple):
    """The result of renewing leases: the lost ones, and those of the others that got a steer."""

    lost: list[Lease]
    steered: list[Lease]


class Steer(msgspec.Struct, frozen=True):
    """A message to a response that is under way: bytes that the store never reads."""

    id: str
    said: bytes


class Successor(msgspec.Struct, frozen=True):
    """A response that continues one with steers: its queued turn, its spec, and the first entry of its log."""

    turn: Turn
    spec: bytes
    entry: LogEntry


class Finished(msgspec.Struct, frozen=True):
    """The result of an end: how many older webhooks were `dropped` for its own, and why it wasn't added to its
    conversation: `gone` or `moved`, else empty."""

    dropped: int
    unjoined: str


class QueueFigures(msgspec.Struct, frozen=True):
    """The figures of a shard: how many jobs wait at each level, how long the oldest without hours has waited
    (seconds), how many are leased, the bytes of all event logs, how many webhooks wait, and the stored responses and
    trees with their bytes in the server's memory."""

    waiting: tuple[int, ...]
    oldest_seconds: float
    running: int
    log_bytes: int
    pending: int
    responses: int
    trees: int
    bytes: int


@dataclass(frozen=True, slots=True)
class JobLimits:
    """How long a lease lasts without a renewal, and how long before its holder's first sign of life; how many jobs
    may wait in a shard, how many bytes all its event logs may have, how long they are kept after the end, and how many
    webhooks may wait."""

    lease_seconds: float = 10.0
    first_seconds: float = 4.0
    waiting: int = 10_000
    log_bytes: int = GIB
    log_seconds: float = 3600.0
    pending: int = 100_000

    def __post_init__(self) -> None:
        """Raises ValueError for a limit that leaves nothing."""
        seconds, counts = (self.lease_seconds, self.first_seconds), (self.waiting, self.log_bytes, self.pending)
        if min(seconds) <= 0 or min(counts) < 1:
            raise ValueError(f"{self} must be positive")

    @property
    def lease_ms(self) -> int:
        return max(1, round(self.lease_seconds * 1000))

    @property
    def first_ms(self) -> int:
        """The length of a lease before its holder's first sign of life."""
        return min(self.lease_ms, max(1, round(self.first_seconds * 1000)))
