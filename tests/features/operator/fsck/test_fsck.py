"""fsck: every fault is found and repaired, a sound store is sound however busy it is, and a look changes nothing."""

import asyncio

import pytest
from redis.asyncio import Redis

from store import codec
from store.errors import LeaseLost, NotFound
from store.fsck.check import CheckReport, Fsck
from store.fsck.faults import MEANINGS
from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import EventLog, LogEntry
from store.jobs.model import JobLimits, Priority
from store.redis.connection import connect
from store.turn import Status, StoredMessage
from tests.support.store.audit import complaints, dump
from tests.support.store.breaks import BREAKS, CAT, DOG, JOB_BREAKS, STAYS, WORDS, Broken
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, said, turn, with_pictures, with_words
from tests.support.store.servers import Cluster
from tests.support.store.verdict import checked
from tests.support.store.work import claim, do_all, fall_silent, finish, submit
from tests.support.store.writer import Writer

PATH_TURNS = 70

CHECKS = 3
WRITERS = 6
BUSY_SECONDS = 60.0
"""How long it may take until writers change something while it is looked at."""

OF_TURNS = pytest.mark.parametrize("broken", ["turns"], indirect=True)
OF_JOBS = pytest.mark.parametrize("broken", ["jobs"], indirect=True)


@pytest.fixture
def jobs(unaudited: ConversationHistoryStore) -> Jobs:
    return Jobs(unaudited, JobLimits(lease_seconds=600.0, first_seconds=600.0))


@pytest.fixture(params=["turns", "jobs"])
async def broken(request: pytest.FixtureRequest, jobs: Jobs, redis: Redis, prefix: str) -> Broken:
    """A store with every shape of tree, or with jobs in every state."""
    ids = await (_of_turns(jobs.history) if request.param == "turns" else _of_jobs(jobs))
    return Broken(redis, prefix, ids)


async def _of_turns(store: ConversationHistoryStore) -> dict[str, str]:
    """A root with a fork; a deleted turn, and an erased one, that others continue; one that a run has pinned; a chain
    with a path; two turns with pictures; and two conversations, one of which was deleted while a run held it."""
    names = ("root", "middle")
    ids: dict[str, str] = dict(zip(names, await grow(store, *names), strict=True))
    ids["leaf"] = store.new_id(ids["middle"])
    await store.append(TENANT, with_pictures(turn(ids["leaf"], ids["middle"], text="leaf"), CAT, DOG))
    ids["fork"], ids["end"] = await grow(store, "fork", "end", parent=ids["root"])
    ids["single"], ids["pinned"] = store.new_id(), (await grow(store, "pinned"))[0]
    await store.append(TENANT, with_words(with_pictures(turn(ids["single"], text="single"), CAT), WORDS))
    ids["elsewhere"] = (await grow(store, "elsewhere"))[0]
    deep = await grow(store, *map(str, range(PATH_TURNS)))
    ids |= {"top": deep[0], "path": deep[32], "deep": deep[-1]}
    await store.forget(TENANT, ids["middle"])
    await store.forget(TENANT, ids["fork"], erase=True)
    await store.chain(TENANT, ids["pinned"], pin=store.token())
    await store.forget(TENANT, ids["pinned"])
    conversations = Conversations(store)
    for name in ("talk", "over"):
        ids[name] = conversations.new_id()
        first = turn(conversations.new_turn_id(ids[name]), text=name)
        await conversations.create(TENANT, ids[name], first, b"{}")
        ids.setdefault("first", first.id)
    await conversations.hold(TENANT, ids["over"], "run", 600.0)
    await conversations.delete(TENANT, ids["over"])
    return ids


async def _of_jobs(jobs: Jobs) -> dict[str, str]:
    """A response in the background in every state: some below a root, and others that are roots themselves."""
    history = jobs.history
    ids = {"root": (await grow(history, "root"))[0]}
    ids["ended"] = await submit(jobs, parent=ids["root"])
    ids["plain"], ids["deleted"] = await submit(jobs, streams=False), await submit(jobs)
    await do_all(jobs)
    ids["child"] = (await grow(history, "child", parent=ids["deleted"]))[0]
    await history.forget(TENANT, ids["deleted"])
    ids["fleeting"] = await submit(jobs, fleeting=True)
    await finish(jobs, await claim(jobs))
    ids["running"], ids["resumed"] = await submit(jobs, parent=ids["root"]), await submit(jobs)
    running, resumed = (await jobs.claim(0, 2)).jobs
    await jobs.write(running.lease, LogEntry(5, b"more"), snapshot=b"{}")
    await jobs.write(running.lease, LogEntry(9, b"more"))
    await jobs.write(resumed.lease, LogEntry(4, b"more"))
    await jobs.hand_back(resumed.lease, failed=True)
    ids["cancelled"], ids["single"] = await submit(jobs), await submit(jobs)
    await jobs.cancel(TENANT, ids["cancelled"])
    ids["waiting"] = await submit(jobs, parent=ids["root"])
    ids["other"] = await submit(jobs, tenant="globex")
    return ids


async def known(store: ConversationHistoryStore, ids: dict[str, str]) -> set[str]:
    """The names of those turns whose response can be read."""
    found: set[str] = set()
    for name, id in ids.items():
        try:
            await store.get(TENANT, id)
        except NotFound:
            continue
        found.add(name)
    return found


async def end_all(jobs: Jobs, ids: dict[str, str]) -> None:
    """Whoever holds a lease loses it, and all that is left is ended."""
    for id in (each for each in ids.values() if each.startswith("resp_")):
        await fall_silent(jobs, id)
    await do_all(jobs)


async def test_a_sound_store_is_sound_and_a_look_changes_nothing(broken: Broken, server_url: str) -> None:
    before = await dump(broken.redis, broken.prefix)
    report = await checked(server_url, broken.prefix)
    assert (report.found, report.unjudged, report.unknown) == (0, [], 0), report
    assert report.turns == sum(":node:" in key for key in before)
    await checked(server_url, broken.prefix, repair=True)
    assert await dump(broken.redis, broken.prefix) == before


@pytest.mark.parametrize(
    ("broken", "name"),
    [*(("turns", name) for name in BREAKS), *(("jobs", name) for name in JOB_BREAKS)],
    indirect=["broken"],
)
async def test_what_is_broken_is_found_and_repaired_and_what_is_left_of_jobs_can_be_ended(
    broken: Broken, jobs: Jobs, server_url: str, name: str
) -> None:
    word, harm, *lost = BREAKS[name] if "talk" in broken.ids else JOB_BREAKS[name]
    before = await known(jobs.history, broken.ids)
    await harm(broken)
    found = await checked(server_url, broken.prefix)
    assert word in {fault.what for fault in found.faults}
    repaired = await checked(server_url, broken.prefix, repair=True)
    left = {fault.what for fault, done in repaired.faults.items() if not done}
    assert (repaired.found, left) == (found.found, STAYS.get(name, set())), repaired
    assert (await checked(server_url, broken.prefix)).found == repaired.left
    assert left or await complaints(broken.redis, broken.prefix) == []
    assert await known(jobs.history, broken.ids) == before - set(lost)
    await end_all(jobs, broken.ids)
    assert left or await complaints(broken.redis, broken.prefix) == []
    for each in before - set(lost):
        assert (await jobs.history.find(TENANT, broken.ids[each])).under_way is False


def test_every_fault_is_caused_by_some_test() -> None:
    of_files = {"file-piece", "file-record"}  # tests/features/files/test_stored_files.py causes these
    assert {word for word, *_ in (*BREAKS.values(), *JOB_BREAKS.values())} | of_files == set(MEANINGS)


@OF_TURNS
async def test_a_fault_in_the_middle_of_a_long_chain_is_derived_to_its_end(
    broken: Broken, unaudited: ConversationHistoryStore, server_url: str
) -> None:
    ids = await grow(unaudited, *map(str, range(120)), parent=broken.ids["deep"])
    before = await said(unaudited, ids[-1])
    longer = StoredMessage("assistant", tokens=b"0".ljust(8, b"\0"))
    longest = codec.encode_messages((longer,))
    await broken.redis.set(broken.key("messages", "top"), longest)
    await broken.set("top", messages_bytes=len(longest))
    report = await checked(server_url, broken.prefix, repair=True)
    assert (report.left, await complaints(broken.redis, broken.prefix)) == (0, [])
    assert await said(unaudited, ids[-1]) == before


@pytest.mark.usefixtures("lost_replies")
@pytest.mark.parametrize(
    ("broken", "names"),
    [
        ("turns", ("a root that is gone", "no leaves", "wrong bytes held", "no usage", "a wrong path", "no children")),
        ("jobs", ("a job that is gone", "a spec that is empty", "no queue", "a tree with a job too few")),
    ],
    indirect=["broken"],
)
async def test_a_repair_whose_every_reply_is_lost_once_comes_to_the_same(
    broken: Broken, server_url: str, names: tuple[str, ...]
) -> None:
    for name in names:
        await (BREAKS | JOB_BREAKS)[name][1](broken)
    report = await checked(server_url, broken.prefix, repair=True)
    assert (report.left, await complaints(broken.redis, broken.prefix)) == (0, [])


async def test_all_shards_of_a_cluster_are_checked_and_each_is_repaired_alone(
    cluster_url: str, nodes: Cluster, prefix: str
) -> None:
    store = ConversationHistoryStore(connect(cluster_url), prefix=prefix, shards=5, timeout_seconds=15.0)
    for number in range(40):
        await grow(store, "a", "b" * number)
    await store.close()
    for shard in ("00", "04"):
        key = f"{prefix}:{{{shard}}}:leaves:{TENANT}"
        nodes.owner(key).ask("DEL", key)
    report = await checked(cluster_url, prefix, shards=5, repair=True)
    harmed = {(shard, what) for shard in (0, 4) for what in ("leaf", "usage")}  # a place counts among the bytes
    assert {(each.shard, each.what) for each in report.faults} == harmed
    assert (report.turns, report.left, report.unjudged) == (80, 0, [])


@OF_TURNS
async def test_what_a_later_release_wrote_is_neither_judged_nor_repaired(broken: Broken, server_url: str) -> None:
    await broken.redis.set(broken.key("messages", "leaf"), bytes([codec.FORMAT + 1]) + b"all is new here")
    await broken.redis.set(broken.shared("job:x"), "y")
    await broken.set("single", held=1)
    before = await dump(broken.redis, broken.prefix)
    report = await checked(server_url, broken.prefix, repair=True)
    assert (report.newer, report.unknown) == (1, 1)
    assert {each.what for each in report.faults} == {"held", "usage"}
    assert await dump(broken.redis, broken.prefix) == before


@OF_TURNS
async def test_a_deleted_turn_that_waits_for_the_sweep_is_no_fault_and_goes_with_a_repair(
    broken: Broken, server_url: str
) -> None:
    await broken.redis.delete(broken.key("pins", "pinned"))
    report = await checked(server_url, broken.prefix)
    assert (report.found, report.unneeded) == (0, 1)
    report = await checked(server_url, broken.prefix, repair=True)
    assert (report.found, report.unneeded, await complaints(broken.redis, broken.prefix)) == (0, 0, [])


@OF_TURNS
async def test_nobody_s_words_are_in_a_fault(broken: Broken, server_url: str) -> None:
    await broken.put(broken.leaves, "a secret")
    await broken.redis.sadd(broken.key("tree", "root"), "a secret")
    report = await checked(server_url, broken.prefix)
    assert {each.what for each in report.faults} == {"misnamed"}
    assert "secret" not in str(report)


async def test_a_store_that_is_busy_is_never_blamed(
    open_store: OpenStore, server_url: str, redis: Redis, prefix: str
) -> None:
    limits = JobLimits(lease_seconds=600.0, first_seconds=600.0, waiting=30, log_bytes=20_000)
    caps = Caps(responses=60, trees=30)
    store = open_store(caps=caps)
    writers, stop = [Writer(store, seed, limits=limits) for seed in range(WRITERS)], asyncio.Event()
    fsck = Fsck(connect(server_url), prefix=prefix, timeout_seconds=15.0)
    reports: list[CheckReport] = []
    async with asyncio.timeout(BUSY_SECONDS), asyncio.TaskGroup() as group:
        for writer in writers:
            group.create_task(writer.run(stop))
        while len(reports) < CHECKS or not any(report.unjudged for report in reports):
            reports += [step async for step in fsck.run() if isinstance(step, CheckReport)]
        stop.set()
    assert not any(report.faults for report in reports)
    assert sum(len(writer.tips) for writer in writers) > caps.responses
    (last,) = [step async for step in fsck.run(repair=True) if isinstance(step, CheckReport)]
    assert (last.found, last.unneeded, last.unjudged) == (0, 0, [])
    assert await complaints(redis, prefix) == []
    await fsck.close()


@OF_JOBS
async def test_a_repair_takes_no_job_from_whoever_works_on_it(broken: Broken, jobs: Jobs, server_url: str) -> None:
    id = await submit(jobs, priority=Priority.PRIORITY)
    job = await claim(jobs)
    while job.lease.id != id:
        job = await claim(jobs)
    for name in ("a job that is gone", "no queue", "a tree with a job too many", "wrong bytes of all events"):
        await JOB_BREAKS[name][1](broken)
    assert (await checked(server_url, broken.prefix, repair=True)).left == 0
    await jobs.write(job.lease, LogEntry(9, b"more"))
    await finish(jobs, job, last=9)


@OF_JOBS
async def test_a_job_that_is_made_anew_goes_on_from_its_log_and_its_former_holder_is_refused(
    broken: Broken, jobs: Jobs, server_url: str
) -> None:
    id = await submit(jobs, priority=Priority.PRIORITY)
    (former,) = [job for job in (await jobs.claim(0, 9)).jobs if job.lease.id == id]
    await jobs.write(former.lease, LogEntry(7, b"more"))
    broken.ids["lost"] = id
    await broken.redis.delete(broken.key("job", "lost"))
    await checked(server_url, broken.prefix, repair=True)
    with pytest.raises(LeaseLost):
        await jobs.write(former.lease, LogEntry(8, b"late"))
    (job,) = [job for job in (await jobs.claim(0, 9)).jobs if job.lease.id == id]
    assert (job.last, await jobs.spec(job.lease), job.status) == (7, b"one", Status.IN_PROGRESS)
    await finish(jobs, job)
    assert [entry.last for entry in await EventLog(jobs.history).read(TENANT, id, -1, 9)] == [1, 7, 17]
