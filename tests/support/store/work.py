"""Work for tests: jobs that are submitted, claimed and ended in a line each, and times that tests choose."""

from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import LogEntry
from store.jobs.model import Job, Lease, Priority, Successor
from store.turn import Status, Turn
from tests.support.store.sample import TENANT, turn

ACCEPTED = LogEntry(1, b"accepted")
"""What every job's log begins with."""

STEP = 10
"""How many events the last entry of a job has."""


async def submit(
    jobs: Jobs,
    name: str = "one",
    *,
    parent: str | None = None,
    tenant: str = TENANT,
    priority: Priority = Priority.DEFAULT,
    streams: bool = True,
    fleeting: bool = False,
    steerable: bool = False,
    pin: str | None = None,
    group: str = "",
    hurries: bool = False,
) -> str:
    """Submit a job whose spec is its name; its id."""
    id = jobs.history.new_id(parent)
    spec = name.encode()
    await jobs.submit(
        tenant,
        queued(id, parent, name),
        spec,
        ACCEPTED,
        priority=priority,
        streams=streams,
        fleeting=fleeting,
        steerable=steerable,
        pin=pin,
        group=group,
        hurries=hurries,
    )
    return id


def queued(id: str, parent: str | None = None, text: str = "one") -> Turn:
    """A turn as it is submitted."""
    return turn(id, parent, text=text, status=Status.QUEUED)


def successor(jobs: Jobs, id: str, name: str = "next") -> Successor:
    """A response that goes on from another; its spec is its name."""
    return Successor(queued(jobs.history.new_id(id), id, name), name.encode(), ACCEPTED)


async def claim(jobs: Jobs) -> Job:
    """The job that is next, which there has to be, with a holder who was heard of."""
    (job,) = (await jobs.claim(0, 1)).jobs
    assert (await jobs.renew([job.lease])).lost == []
    return job


async def claimed(jobs: Jobs, most: int) -> list[str]:
    """The names of the jobs that are next."""
    return [(await jobs.spec(job.lease)).decode() for job in (await jobs.claim(0, most)).jobs]


async def finish(
    jobs: Jobs,
    job: Job,
    *,
    status: Status = Status.COMPLETED,
    text: str = "done",
    last: int | None = None,
    announced: bool = False,
) -> Turn:
    """End a job, or what was cancelled of it, behind event `last` where that is not the one it was claimed with."""
    status = Status.CANCELLED if job.status is Status.CANCELLED else status
    done = turn(job.lease.id, text=text, status=status)
    behind = job.last if last is None else last
    await jobs.finish(job.lease, done, LogEntry(behind + STEP, b"the end"), announced=announced)
    return done


async def do_all(jobs: Jobs) -> None:
    """Claim and end all that waits."""
    while claim := (await jobs.claim(0, 10)).jobs:
        for job in claim:
            await finish(jobs, job)


async def fall_silent(jobs: Jobs, id: str, tenant: str = TENANT) -> None:
    """The holder of a job says nothing for so long that its lease runs out, by both notes of when that is."""
    await _date(jobs, Lease(tenant, id, ""), "leases", 0)
    async with jobs.history.server.operation() as operation:
        await operation.command("HDEL", jobs.history.keyspace.turn(tenant, id).key("job"), "leased")


async def step_back(jobs: Jobs, id: str, seconds: float, tenant: str = TENANT) -> None:
    """The server's clock is stepped back, so that the job's lease ends so many seconds later than it would have."""
    await _date(jobs, Lease(tenant, id, ""), "leases", round(1000 * seconds), "INCR")


async def date_log(jobs: Jobs, id: str, ended_ms: int = 0, tenant: str = TENANT) -> None:
    """A response ended at another time, or so long ago that its events were kept for long enough."""
    await _date(jobs, Lease(tenant, id, ""), "logs", ended_ms)


async def _date(jobs: Jobs, lease: Lease, place: str, ms: int, *how: str) -> None:
    keys = jobs.history.keyspace.turn(lease.tenant, lease.id)
    async with jobs.history.server.operation() as operation:
        await operation.command("ZADD", keys.key(place), "XX", *how, ms, f"{lease.tenant}/{keys.digits}")


async def age(jobs: Jobs, id: str, seconds: float, tenant: str = TENANT) -> None:
    """A job that waits was accepted so many seconds earlier."""
    keys = jobs.history.keyspace.turn(tenant, id)
    async with jobs.history.server.operation() as operation:
        level = (await operation.command("HGET", keys.key("job"), "level")).decode()
        accepted = await operation.command("HINCRBY", keys.key("job"), "submitted", -round(1000 * seconds))
        place = keys.shard.key_named(f"accepted:{level}")
        await operation.command("ZADD", place, "XX", accepted, f"{tenant}/{keys.digits}")


async def status(history: ConversationHistoryStore, id: str, tenant: str = TENANT) -> Status:
    """Where a response stands."""
    return (await history.find(tenant, id)).status


def log_names(store: ConversationHistoryStore, id: str) -> tuple[str, str]:
    """The key and the channel of a response's log."""
    keys = store.keyspace.turn(TENANT, id)
    return keys.key("log"), keys.key("events")


async def write_log(redis: Redis, store: ConversationHistoryStore, id: str, last: int, blob: bytes) -> None:
    """Add an entry whose last event has the number `last`."""
    key, channel = log_names(store, id)
    async with redis.pipeline(transaction=True) as both:
        both.execute_command("XADD", key, f"{last + 1}-0", "b", blob)
        both.execute_command("SPUBLISH", channel, b"%d %b" % (last + 1, blob))
        await both.execute()
