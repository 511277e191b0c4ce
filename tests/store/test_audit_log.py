"""The audit log: who has what room in it, which entry goes where there is none, and how it is read."""

from random import Random

import msgspec
import pytest
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
from store.redis import scripts
from store.registry import ADMINISTRATORS, STRANGERS, Registry

ROOM = 20
"""How many entries administrators may have, and all others together."""


@pytest.fixture
def registry(store: ConversationHistoryStore) -> Registry:
    """The registry of an empty store."""
    return Registry(store, most_entries=2 * ROOM)


async def note(registry: Registry, share: str, number: int) -> None:
    """So many entries of a share, which are numbered."""
    for each in range(number):
        await registry.note(share, f"{share} {each}".encode())


async def kept(registry: Registry) -> dict[str, list[int]]:
    """Which entries each share has, the oldest first."""
    found: dict[str, list[int]] = {}
    for entry in reversed(await registry.entries(limit=10_000)):
        share, number = entry.record.decode().split()
        found.setdefault(share, []).append(int(number))
    return found


async def test_who_has_much_to_note_pushes_out_nothing_of_others(registry: Registry) -> None:
    await note(registry, ADMINISTRATORS, 5)
    await note(registry, "victim", 6)
    await note(registry, STRANGERS, 2)
    await note(registry, "attacker", 10 * ROOM)
    assert await kept(registry) == {
        ADMINISTRATORS: [*range(5)],
        "victim": [*range(6)],
        STRANGERS: [0, 1],
        "attacker": [*range(10 * ROOM - (ROOM - 8), 10 * ROOM)],
    }


async def test_administrators_have_a_room_of_their_own(registry: Registry) -> None:
    await note(registry, "one", ROOM)
    await note(registry, ADMINISTRATORS, 3 * ROOM)
    assert await kept(registry) == {"one": [*range(ROOM)], ADMINISTRATORS: [*range(2 * ROOM, 3 * ROOM)]}


async def test_where_there_are_more_shares_than_room_some_have_nothing(registry: Registry) -> None:
    for number in range(2 * ROOM):
        await note(registry, f"t{number}", 1)
    found = await kept(registry)
    assert len(found) == ROOM
    assert all(numbers == [0] for numbers in found.values())


@pytest.mark.parametrize("seed", range(5))
async def test_whoever_has_no_more_than_its_part_loses_nothing(registry: Registry, seed: int) -> None:
    chance, noted = Random(seed), dict[str, int]()
    shares = [f"t{number}" for number in range(chance.randint(2, 6))]
    weights = [chance.random() ** 3 for _ in shares]
    for share in chance.choices(shares, weights, k=150):
        await registry.note(share, f"{share} {noted.get(share, 0)}".encode())
        noted[share] = noted.get(share, 0) + 1
    found = await kept(registry)
    assert sum(map(len, found.values())) == ROOM
    for share, number in noted.items():
        least = min(number, ROOM // len(noted))
        assert len(found[share]) >= least
        assert found[share] == [*range(number - len(found[share]), number)]


async def test_a_bound_that_is_lowered_is_kept_after_some_more_entries(
    registry: Registry, store: ConversationHistoryStore
) -> None:
    await note(registry, "one", ROOM)
    await note(registry, ADMINISTRATORS, ROOM)
    smaller = Registry(store, most_entries=6)
    await note(smaller, "one", ROOM)
    await note(smaller, ADMINISTRATORS, ROOM)
    latest = [*range(ROOM - 3, ROOM)]
    assert await kept(registry) == {"one": latest, ADMINISTRATORS: latest}


async def test_nothing_is_left_of_entries_that_went(registry: Registry, redis: Redis, prefix: str) -> None:
    for number in range(3 * ROOM):
        await note(registry, f"t{number}", 1)
    await note(registry, "last", 2 * ROOM)
    keys = {key.decode().rpartition("audit-")[2] async for key in redis.scan_iter(f"{prefix}:*:audit-*")}
    shares = await redis.zrange(f"{prefix}:{{00}}:audit-shares", 0, -1, withscores=True)
    assert keys == {"entries", "shares", *(f"of:{share.decode()}" for share, _ in shares)}
    assert sum(number for _, number in shares) == ROOM
    assert len(await registry.entries()) == ROOM


async def test_a_share_whose_list_is_lost_stops_nobody(registry: Registry, redis: Redis, prefix: str) -> None:
    await note(registry, "lost", ROOM)
    await redis.delete(f"{prefix}:{{00}}:audit-of:lost")
    await note(registry, "other", 3)
    assert (await kept(registry))["lost"] == [*range(ROOM)]
    assert await redis.zscore(f"{prefix}:{{00}}:audit-shares", "lost") is None


async def test_no_two_entries_are_of_one_moment_though_the_clock_steps_back(
    registry: Registry, redis: Redis, prefix: str
) -> None:
    future = 4_000_000_000_000_000
    await redis.hset(f"{prefix}:{{00}}:registry", "noted", future)
    await registry.change((), entries=[b"same", b"same"])
    await registry.note("one", b"same")
    assert [each.us - future for each in await registry.entries()] == [3, 2, 1]


async def test_an_entry_that_is_sent_again_behind_those_of_others_is_there_once(
    registry: Registry, store: ConversationHistoryStore
) -> None:
    async def send(share: str, mark: str) -> None:
        async with store.server.operation() as operation:
            await scripts.change_registry(
                operation,
                store.keyspace.all_shards()[0],
                changes=b"[]",
                places=b"[]",
                mark=mark,
                entries=msgspec.json.encode([f"{share} 0"]),
                share=share,
                most_entries=ROOM,
                tell="",
            )

    marks = {f"t{number}": f"{number:032x}" for number in range(8)}
    for _ in range(2):
        for share, mark in marks.items():
            await send(share, mark)
    await note(registry, ADMINISTRATORS, ROOM)
    assert await kept(registry) == {share: [0] for share in marks} | {ADMINISTRATORS: [*range(ROOM)]}
