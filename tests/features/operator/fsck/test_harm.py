"""Whatever somebody does to a store's keys at random: fsck finds it, and after a repair all that is left adds up."""

import random

import pytest
from redis.asyncio import Redis

from store.fsck.faults import LACKING
from tests.support.lengths import lengths
from tests.support.store.audit import complaints, replies
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT
from tests.support.store.servers import sweep
from tests.support.store.verdict import checked
from tests.support.store.writer import Writer

STEPS = 60
NONSENSE = ("0", "1", "-1", "7", "nan", "inf", "", "abc", "1e5", "0" * 48, f"{TENANT}/{'0' * 48}")


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
    open_store: OpenStore, server_url: str, redis: Redis, prefix: str, seeds: int
) -> None:
    for seed in range(seeds):
        chance, place = random.Random(seed), f"{prefix}-{seed}"
        store = open_store(place, entropy=random.Random(seed).randbytes)
        writer = Writer(store, seed)
        for _ in range(STEPS):
            await writer.step()
        done = [await harm(redis, place, chance) for _ in range(chance.choice([1, 1, 2, 4]))]
        sound = await is_sound(redis, place)
        found = await checked(server_url, place)
        assert sound or found.found or found.unneeded, (seed, done)
        repaired = await checked(server_url, place, repair=True)
        left = {fault.what for fault, is_repaired in repaired.faults.items() if not is_repaired}
        assert (left - LACKING - {"picture"}, repaired.unjudged) == (set(), []), (seed, done, repaired)
        assert left or await complaints(redis, place) == [], (seed, done)
        await sweep(redis, f"{place}:")  # or each look would go over all that was there before
