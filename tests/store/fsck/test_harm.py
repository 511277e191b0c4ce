"""Whatever somebody does to a store's keys at random: fsck finds it, and after a repair all that is left adds up."""

import random
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from store.errors import NotFound
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.jobs.jobs import Jobs
from store.jobs.log import Entry
from store.jobs.model import JobLimits, Priority
from store.redis.connection import connect
from tests.support.lengths import lengths
from tests.support.store.audit import complaints, replies
from tests.support.store.sample import TENANT, turn, with_pictures
from tests.support.store.servers import sweep
from tests.support.store.verdict import checked
from tests.support.store.work import finish, submit

TURNS = 25
NONSENSE = ("0", "1", "-1", "7", "nan", "inf", "", "abc", "1e5", "0" * 48, f"{TENANT}/{'0' * 48}")


async def plant(store: ConversationHistoryStore, chance: random.Random) -> None:
    """Trees of any shape, in which some turns were deleted or erased, some show pictures, some are or were made in the
    background, and some are of conversations.
    """
    ids: list[str] = []
    jobs = Jobs(store, JobLimits(lease_seconds=600.0, first_seconds=600.0))
    for number in range(TURNS):
        parent = chance.choice(ids[-6:]) if ids and chance.random() < 0.85 else None
        id = store.new_id(parent)
        shown = chance.sample((b"cat" * 99, b"dog" * 99, b"owl" * 99), chance.choice([0, 0, 0, 1, 2]))
        with suppress(NotFound):
            await store.append(TENANT, with_pictures(turn(id, parent, text=str(number)), *shown))
            ids.append(id)
            if chance.random() < 0.15:
                await store.forget(TENANT, chance.choice(ids), erase=chance.random() < 0.5)
        with suppress(NotFound):
            if chance.random() < 0.2:
                ids.append(await talk(Conversations(store), chance))
        with suppress(NotFound):
            if chance.random() < 0.3:
                await work_on(jobs, chance, chance.choice([None, *ids[-6:]]))


async def talk(conversations: Conversations, chance: random.Random) -> str:
    """Begin a conversation, and hold it, delete it, or add a turn to it; its newest turn."""
    id = conversations.new_id()
    first = turn(conversations.new_turn_id(id))
    await conversations.create(TENANT, id, first, b"{}")
    if chance.random() < 0.5:
        await conversations.hold(TENANT, id, "run", 600.0)
    if chance.random() < 0.3:
        await conversations.delete(TENANT, id)
        return first.id
    if chance.random() < 0.5:
        return first.id
    next_one = turn(conversations.history.new_id(first.id), first.id, text="next")
    await conversations.advance(TENANT, id, next_one, hold="run")
    return next_one.id


async def work_on(jobs: Jobs, chance: random.Random, parent: str | None) -> None:
    """Submit a job, and do something to whichever is next."""
    streams, priority = chance.random() < 0.7, chance.choice(list(Priority))
    id = await submit(jobs, parent=parent, streams=streams, fleeting=chance.random() < 0.2, priority=priority)
    if chance.random() < 0.2:
        await jobs.cancel(TENANT, id)
    if chance.random() < 0.5:
        return
    for job in (await jobs.claim(0, 1)).jobs:
        await jobs.write(job.lease, Entry(5, b"more"), snapshot=chance.choice([b"", b"{}"]))
        if chance.random() < 0.6:
            await finish(jobs, job, last=5)
        elif chance.random() < 0.3:
            await jobs.hand_back(job.lease, failed=True)


async def harm(redis: Redis, prefix: str, chance: random.Random) -> str:
    """Change any key in any way that its type permits, or take it away; what was done."""
    keys = sorted([key.decode() async for key in redis.scan_iter(f"{prefix}:*", count=1000)])
    key, value = chance.choice(keys), chance.choice([*NONSENSE, chance.choice(keys)[-48:]])
    kind = await redis.type(key)
    commands: list[tuple[str | float, ...]] = [("DEL", key)]
    match kind:
        case b"hash":
            field = chance.choice(sorted(await redis.hkeys(key))).decode()
            commands += [("HDEL", key, field), ("HSET", key, field, value)]
        case b"zset":
            member = chance.choice(await redis.zrange(key, 0, -1)).decode()
            score = chance.choice([0, 1, -5, 9e15, "inf"])
            commands += [("ZREM", key, member), ("ZADD", key, score, member), ("ZADD", key, 1, value or "x")]
        case b"stream":
            commands += [("XADD", key, "*", "b", value), ("XTRIM", key, "MAXLEN", chance.choice([0, 1]))]
        case b"set":
            commands += [("SPOP", key), ("SADD", key, value or "x")]
        case _:
            commands += [("SET", key, text) for text in ("", "\0", "\1", "\1\1")]
    command = chance.choice(commands)
    await replies(redis, [command])
    return " ".join(map(repr, command))


async def is_sound(redis: Redis, prefix: str) -> bool:
    try:
        return not await complaints(redis, prefix)
    except (KeyError, ValueError, TypeError, OverflowError):  # the oracle was not made for nonsense
        return False


@pytest.mark.parametrize("seeds", lengths(25, 1_000))
async def test_any_harm_is_found_and_what_is_left_after_a_repair_adds_up(
    server_url: str, redis: Redis, prefix: str, seeds: int
) -> None:
    for seed in range(seeds):
        chance, place = random.Random(seed), f"{prefix}-{seed}"
        store = ConversationHistoryStore(connect(server_url), prefix=place, entropy=random.Random(seed).randbytes)
        await plant(store, chance)
        await store.close()
        done = [await harm(redis, place, chance) for _ in range(chance.choice([1, 1, 2, 4]))]
        sound = await is_sound(redis, place)
        _, found = await checked(server_url, place)
        assert sound or found.found or found.unneeded, (seed, done)
        _, repaired = await checked(server_url, place, repair=True)
        assert (repaired.left, repaired.unjudged) == (0, []), (seed, done, repaired)
        assert await complaints(redis, place) == [], (seed, done)
        await sweep(redis, f"{place}:")  # or each look would go over all that was there before
