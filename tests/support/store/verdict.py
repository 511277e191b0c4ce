"""The verdict on a store that was treated badly: what the oracle of the tests says, and what `harmonium fsck` says."""

from redis.asyncio import Redis

from store.fsck.check import Archived, CheckReport, Fsck
from store.fsck.faults import Fault
from store.redis.connection import connect
from tests.support.store.audit import complaints


async def faults(redis: Redis, url: str, prefix: str, *, shards: int = 1) -> list[str]:
    """Everything that either finds, on a store that nobody uses."""
    found, report = await checked(url, prefix, shards)
    unjudged = [f"fsck could not judge the sums of shard {shard}" for shard in report.unjudged]
    return [*await complaints(redis, prefix), *map(str, found), *unjudged]


async def checked(
    url: str, prefix: str, shards: int = 1, *, repair: bool = False, archived: Archived | None = None
) -> tuple[list[Fault], CheckReport]:
    """What fsck finds, at once, and its report; with `repair` it repairs that, and asks what is `archived`."""
    fsck = Fsck(connect(url), prefix=prefix, shards=shards, timeout_seconds=30.0, archived=archived)
    try:
        steps = [step async for step in fsck.run(repair=repair)]
    finally:
        await fsck.close()
    (report,) = (step for step in steps if isinstance(step, CheckReport))
    return [step for step in steps if isinstance(step, Fault)], report
