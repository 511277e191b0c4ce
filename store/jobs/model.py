"""The values around a job: the lease by which it is held, the job as it was claimed, and the limits of all jobs.

A job is a background response that hasn't ended. What is done with these values is in jobs.py.
"""

from dataclasses import dataclass
from enum import IntEnum

import msgspec

from store.turn import Status

GIB = 1 << 30


class Priority(IntEnum):
    """When a job starts: all that wait with a lower number start first. 0 are jobs that had begun."""

    PRIORITY = 1
    DEFAULT = 2
    FLEX = 3


LEVELS = 1 + len(Priority)
"""The queues of a shard: one for jobs that had begun, and one for each priority (the same as in lua/queueing.lua)."""


class Lease(msgspec.Struct, frozen=True):
    """The right to work on a job: the proof that nobody else does."""

    tenant: str
    id: str
    token: str


class Job(msgspec.Struct, frozen=True):
    """A job as it was claimed.

    `status` is in_progress, or cancelled for one that is only to be ended. `tries` is how many holders in a row, this
    one included, have it without getting any further, and `last` the number of the last event in its log. It was
    submitted `age_seconds` ago, began `run_seconds` ago, and waited for `waited_seconds` this time.
    """

    lease: Lease
    epoch: int
    status: Status
    tries: int
    last: int
    age_seconds: float
    run_seconds: float
    waited_seconds: float
    spec: bytes = b""


class Claim(msgspec.Struct, frozen=True):
    """What a claim gave: jobs, and how many leases it found run out."""

    jobs: list[Job]
    rescued: int


class Queue(msgspec.Struct, frozen=True):
    """What is under way in a shard: how many jobs wait at each level, for how long the oldest of them does (seconds),
    how many somebody works on, the bytes of all event logs, and how many ends wait to be told; and what is stored
    there, as responses and as the bytes that the server holds for conversations."""

    waiting: tuple[int, ...]
    oldest_seconds: float
    running: int
    log_bytes: int
    pending: int
    responses: int
    bytes: int


@dataclass(frozen=True, slots=True)
class JobLimits:
    """How long a lease is held without a word, how many jobs may wait in a shard, how many bytes all its event logs may
    have, how long they are kept after the end, and how many ends may wait to be told."""

    lease_seconds: float = 10.0
    waiting: int = 10_000
    log_bytes: int = GIB
    log_seconds: float = 3600.0
    pending: int = 100_000

    def __post_init__(self) -> None:
        """Raises ValueError for a limit that leaves nothing."""
        if self.lease_seconds <= 0 or self.waiting < 1 or self.log_bytes < 1 or self.pending < 1:
            raise ValueError(f"{self} must be positive")

    @property
    def lease_ms(self) -> int:
        """The length of a lease."""
        return max(1, round(self.lease_seconds * 1000))
