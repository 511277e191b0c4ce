"""Journaling: writing to the event logs of jobs, and removing logs.

All logs of a shard share one bound. The oldest logs of ended responses go first. Where only logs of jobs under way are
left, nothing more is written; what was removed by then stays removed.
"""

from store.errors import LeaseLost, LogBehind, LogFull
from store.jobs.log import Entry
from store.jobs.model import JobLimits, Lease
from store.keys import ShardKeys, TurnKeys
from store.redis import scripts
from store.redis.connection import Operation

DROP_BATCH = 20
"""The most logs that one call removes, so that others are served in between."""


async def write(
    operation: Operation,
    keys: TurnKeys,
    lease: Lease,
    entry: Entry,
    *,
    after: int | None,
    progress: bool,
    snapshot: bytes,
    limits: JobLimits,
) -> None:
    """Add an entry to the log of a job, after removing as many logs as that needs.

    `snapshot`, unless it is empty, begins with the number of the last event and a space. Raises LeaseLost, LogFull,
    LogBehind, and redis-py's errors.
    """
    word, detail = b"again", []
    while word == b"again":  # each call removes logs, until there are none
        word, *detail = await scripts.journal(
            operation,
            keys,
            token=lease.token,
            lease_ms=limits.lease_ms,
            after="" if after is None else str(after),
            last=entry.last,
            entry=entry.blob,
            progress="1" if progress else "0",
            snapshot=snapshot,
            max_logged=limits.log_bytes,
            budget=DROP_BATCH,
        )
    if word == b"lost":
        raise LeaseLost(lease.id)
    if word == b"full":
        raise LogFull(lease.id)
    if word == b"behind":
        raise LogBehind(lease.id, int(detail[0]))


async def expire(operation: Operation, shard: ShardKeys, limits: JobLimits) -> bool:
    """Remove some logs of a shard that were kept for long enough; whether there are more. Raises redis-py's errors."""
    kept_ms = round(limits.log_seconds * 1000)
    (word,) = await scripts.expire_logs(operation, shard, kept_ms=kept_ms, budget=DROP_BATCH)
    return word == b"again"
