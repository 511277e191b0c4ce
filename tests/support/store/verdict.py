"""The verdict on a store that was treated badly: what the oracle of the tests says, and what `harmonium fsck` says."""

from redis.asyncio import Redis

from store.fsck.check import Archived, CheckReport, Fsck
from store.redis.connection import connect
from tests.support.store.audit import complaints


async def faults(redis: Redis, url: str, prefix: str, *, shards: int = 1) -> list[str]:
    """Everything that either finds, on a store that nobody uses."""
    report = await checked(url, prefix, shards)
    unjudged = [f"fsck could not judge the sums of shard {shard}" for shard in report.unjudged]
    return [*await complaints(redis, prefix), *map(str, report.faults), *unjudged]


async def checked(
    url: str, prefix: str, shards: int = 1, *, repair: bool = False, archived: Archived | None = None
) -> CheckReport:
    """The report of fsck; with `repair` it repairs what it finds, and asks what is `archived`."""
    fsck = Fsck(connect(url), prefix=prefix, shards=shards, timeout_seconds=30.0, archived=archived)
    try:
        *_, report = [step async for step in fsck.run(repair=repair)]
    finally:
        await fsck.close()
    assert isinstance(report, CheckReport)
    return report
