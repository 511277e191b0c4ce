"""fsck: every fault is found and repaired, a sound store is sound however busy it is, and a look changes nothing."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from store import codec
from store.errors import NotContinuable, NotFound, StoreFull, StoreUnavailable
from store.fsck.check import Fsck, Report
from store.fsck.inspection import Shard
from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.keys import Keyspace, TurnKeys
from store.redis.connection import Argument, Operation, Server, connect
from store.redis.scripts import ALL, script
from store.turn import StoredMessage
from tests.support.store.audit import complaints, dump
from tests.support.store.breaks import BREAKS, CAT, DOG, WORDS, Broken
from tests.support.store.sample import TENANT, grow, said, turn, with_pictures, with_words
from tests.support.store.servers import cluster
from tests.support.store.verdict import checked

SHARDS = 5
PATH_TURNS = 70

CHECKS = 3
TASKS = 6


@pytest.fixture
async def broken(unaudited: ConversationHistoryStore, redis: Redis, prefix: str) -> Broken:
    """A root with a fork; a deleted turn, and an erased one, that others continue; one that a run has pinned; a chain
    with a path; two turns with pictures; and two conversations, one of which was deleted while a run held it."""
    names = ("root", "middle")
    ids = dict(zip(names, await grow(unaudited, *names), strict=True))
    ids["leaf"] = unaudited.new_id(ids["middle"])
    await unaudited.append(TENANT, with_pictures(turn(ids["leaf"], ids["middle"], text="leaf"), CAT, DOG))
    ids["fork"], ids["end"] = await grow(unaudited, "fork", "end", parent=ids["root"])
    ids["single"], ids["pinned"] = unaudited.new_id(), (await grow(unaudited, "pinned"))[0]
    await unaudited.append(TENANT, with_words(with_pictures(turn(ids["single"], text="single"), CAT), WORDS))
    ids["elsewhere"] = (await grow(unaudited, "elsewhere"))[0]
    deep = await grow(unaudited, *map(str, range(PATH_TURNS)))
    ids |= {"top": deep[0], "path": deep[32], "deep": deep[-1]}
    await unaudited.forget(TENANT, ids["middle"])
    await unaudited.forget(TENANT, ids["fork"], erase=True)
    await unaudited.chain(TENANT, ids["pinned"], pin=unaudited.token())
    await unaudited.forget(TENANT, ids["pinned"])
    conversations = Conversations(unaudited)
    for name in ("talk", "over"):
        ids[name] = conversations.new_id()
        first = turn(conversations.new_turn_id(ids[name]), text=name)
        await conversations.create(TENANT, ids[name], first, b"{}")
        ids.setdefault("first", first.id)
    await conversations.hold(TENANT, ids["over"], "run", 600.0)
    await conversations.delete(TENANT, ids["over"])
    return Broken(redis, prefix, ids)


async def check(redis_url: str, prefix: str, *, repair: bool = False, shards: int = 1) -> Report:
    """The report of a check that goes on to its end."""
    heard, report = await checked(redis_url, prefix, shards, repair=repair)
    assert {*heard} <= report.faults.keys()
    return report


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


async def test_a_sound_store_is_sound_and_a_look_changes_nothing(broken: Broken, server_url: str) -> None:
    before = await dump(broken.redis, broken.prefix)
    report = await check(server_url, broken.prefix)
    assert (report.found, report.unjudged, report.unknown) == (0, [], 0), report
    assert report.turns == PATH_TURNS + 12
    await check(server_url, broken.prefix, repair=True)
    assert await dump(broken.redis, broken.prefix) == before


@pytest.mark.parametrize("name", BREAKS)
async def test_what_is_broken_is_found_and_repaired(
    broken: Broken, unaudited: ConversationHistoryStore, server_url: str, name: str
) -> None:
    word, harm, lost = BREAKS[name]
    before = await known(unaudited, broken.ids)
    await harm(broken)
    found = await check(server_url, broken.prefix)
    assert word in {fault.what for fault in found.faults}
    repaired = await check(server_url, broken.prefix, repair=True)
    assert (repaired.found, repaired.left) == (found.found, 0), repaired
    assert (await check(server_url, broken.prefix)).found == 0
    assert await complaints(broken.redis, broken.prefix) == []
    assert await known(unaudited, broken.ids) == before - set(lost)


async def test_a_fault_in_the_middle_of_a_long_chain_is_derived_to_its_end(
    broken: Broken, unaudited: ConversationHistoryStore, server_url: str
) -> None:
    ids = await grow(unaudited, *map(str, range(120)), parent=broken.ids["deep"])
    before = await said(unaudited, ids[-1])
    longer = StoredMessage("assistant", tokens=b"0".ljust(8, b"\0"))
    await broken.redis.set(broken.key("messages", "top"), codec.encode_messages((longer,)))
    report = await check(server_url, broken.prefix, repair=True)
    assert (report.left, await complaints(broken.redis, broken.prefix)) == (0, [])
    assert await said(unaudited, ids[-1]) == before


@pytest.mark.usefixtures("lost_replies")
async def test_a_repair_whose_every_reply_is_lost_once_comes_to_the_same(broken: Broken, server_url: str) -> None:
    for name in ("a root that is gone", "no leaves", "wrong bytes held", "no usage", "a wrong path", "no children"):
        await BREAKS[name][1](broken)
    report = await check(server_url, broken.prefix, repair=True)
    assert (report.left, await complaints(broken.redis, broken.prefix)) == (0, [])


async def test_all_shards_are_checked_and_each_is_repaired_alone(server_url: str, redis: Redis, prefix: str) -> None:
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, shards=3)
    for number in range(30):
        await grow(store, "a", "b" * number)
    await store.close()
    await redis.hset(f"{prefix}:{{01}}:usage", "trees", 1_000)
    await redis.delete(f"{prefix}:{{02}}:leaves:{TENANT}")
    report = await check(server_url, prefix, shards=3, repair=True)
    assert {(each.shard, each.what) for each in report.faults} == {(1, "usage"), (2, "leaf"), (2, "usage")}
    assert (report.turns, report.left) == (60, 0)
    assert await complaints(redis, prefix) == []


async def test_a_cluster_is_checked_shard_by_shard(tmp_path: Path) -> None:
    with cluster(tmp_path) as servers:
        store = ConversationHistoryStore(connect(servers.url), prefix="p", shards=SHARDS)
        for number in range(40):
            await grow(store, "a", "b" * number)
        await store.close()
        for shard in ("00", "04"):
            servers.owner(f"p:{{{shard}}}:leaves").ask("DEL", f"p:{{{shard}}}:leaves:{TENANT}")
        report = await check(servers.url, "p", shards=SHARDS, repair=True)
        assert {(each.shard, each.what) for each in report.faults} == {
            (shard, what)
            for shard in (0, 4)
            for what in ("leaf", "usage")  # a place counts among the bytes
        }
        assert (report.turns, report.left, report.unjudged) == (80, 0, [])


async def test_what_a_later_release_wrote_is_neither_judged_nor_repaired(broken: Broken, server_url: str) -> None:
    await broken.redis.set(broken.key("messages", "leaf"), bytes([codec.FORMAT + 1]) + b"all is new here")
    await broken.redis.set(broken.shared("job:x"), "y")
    await broken.set("single", held=1)
    before = await dump(broken.redis, broken.prefix)
    report = await check(server_url, broken.prefix, repair=True)
    assert (report.newer, report.unknown) == (1, 1)
    assert {each.what for each in report.faults} == {"held", "usage"}
    assert await dump(broken.redis, broken.prefix) == before


async def test_a_deleted_turn_that_waits_for_the_sweep_is_no_fault_and_goes_with_a_repair(
    broken: Broken, server_url: str
) -> None:
    await broken.redis.delete(broken.key("pins", "pinned"))
    report = await check(server_url, broken.prefix)
    assert (report.found, report.unneeded) == (0, 1)
    report = await check(server_url, broken.prefix, repair=True)
    assert (report.found, report.unneeded, await complaints(broken.redis, broken.prefix)) == (0, 0, [])


async def test_nobody_s_words_are_in_a_fault(broken: Broken, server_url: str) -> None:
    await broken.redis.zadd(broken.leaves, {"a secret": 1})
    await broken.redis.sadd(broken.key("tree", "root"), "a secret")
    report = await check(server_url, broken.prefix)
    assert {each.what for each in report.faults} == {"misnamed"}
    assert "secret" not in str(report)


async def test_a_store_that_is_busy_is_never_blamed(server_url: str, redis: Redis, prefix: str) -> None:
    caps = Caps(responses=60, trees=12)
    store = ConversationHistoryStore(connect(server_url), prefix=prefix, caps=caps)
    known: list[str] = []
    tasks = [asyncio.create_task(_talk(store, random.Random(seed), known)) for seed in range(TASKS)]
    fsck = Fsck(connect(server_url), prefix=prefix)
    reports = [step for _ in range(CHECKS) async for step in fsck.run() if isinstance(step, Report)]
    assert [task for task in tasks if task.done()] == []
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [report.faults for report in reports] == [{}] * CHECKS
    assert len(known) > caps.responses
    assert any(report.unjudged for report in reports)
    (last,) = [step async for step in fsck.run(repair=True) if isinstance(step, Report)]
    assert (last.found, last.unneeded, last.unjudged) == (0, 0, [])  # those of whom was cancelled are taken away
    assert await complaints(redis, prefix) == []
    await fsck.close()
    await store.close()


async def _talk(store: ConversationHistoryStore, chance: random.Random, known: list[str]) -> None:
    """Append, fork, forget and erase, without end; whatever is evicted meanwhile is no surprise."""
    while True:
        parent = chance.choice(known[-200:]) if known and chance.random() < 0.8 else None
        chain = None
        try:
            id = store.new_id(parent)
            chain = None if parent is None else await store.chain(TENANT, parent, pin=store.token())
            if chance.random() < 0.2 and parent:
                await store.forget(TENANT, parent, erase=chance.random() < 0.5)
            await store.append(TENANT, turn(id, parent, text="x" * chance.randrange(300)), pin=chain and chain.pin)
            known.append(id)
            if chance.random() < 0.2:
                await store.forget(TENANT, chance.choice(known[-50:]))
        except (NotFound, NotContinuable, StoreFull):
            if chain is not None and chain.pin:
                await store.unpin(TENANT, chain.ids[-1], chain.pin)


async def test_a_script_that_only_reads_is_refused_any_write_by_the_server(broken: Broken, server_url: str) -> None:
    @script("node pins", read_only=True)
    def unpin(turn: TurnKeys, *, pin: str) -> None: ...

    assert {each.name for each in ALL if "no-writes" in each.flags} == {
        "lineage",
        "recognise",
        "look",
        "page",
        "inspect_turns",
        "gauge",
        "describe",
        "sum_up",
        "tips",
        "climb",
        "jobs_of",
    }
    nothing = Keyspace(broken.prefix, 1).keys(TENANT, "00")
    server = Server(connect(server_url), timeout_seconds=2, attempts=1)
    with pytest.raises(StoreUnavailable, match="Write commands are not allowed"):
        async with server.operation() as operation:
            await unpin(operation, nothing, pin="x")
    await server.close()


class Interrupted(Server):
    """Calls `meanwhile` after the first GET of its operations."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    def operation(self) -> Operation:
        operation = super().operation()
        ask = operation.command

        async def command(*args: Argument, at: Argument | None = None) -> object:
            reply = await ask(*args, at=at)
            if args[0] == "GET" and self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                await meanwhile()
            return reply

        operation.command = command
        return operation


async def test_a_moment_in_which_something_is_stored_is_no_other_moment(
    unaudited: ConversationHistoryStore, server_url: str, prefix: str
) -> None:
    (old,) = await grow(unaudited, "old")
    server = Interrupted(connect(server_url), timeout_seconds=5.0, attempts=1)
    shard = Shard(server, Keyspace(prefix, 1), 0, 0.0)
    before = (await shard.moment()).sums
    await unaudited.forget(TENANT, old)

    server.meanwhile = lambda: grow(unaudited, "new")
    assert (await shard.moment()).sums != before  # as much was stored between its questions as had gone before
    await server.close()
