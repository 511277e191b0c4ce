"""The audit log: who has what room in it, which entry goes where there is none, and how it is read."""

from random import Random

import pytest
from redis.asyncio import Redis

from store.history.history import ConversationHistoryStore
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


async def test_nothing_is_left_of_entries_that_went(registry: Registry, redis: Redis, prefix: str) -> None:
    for number in range(3 * ROOM):
        await note(registry, f"t{number}", 1)
    await note(registry, "last", 2 * ROOM)
    keys = {key.decode().rpartition("audit-")[2] async for key in redis.scan_iter(f"{prefix}:*:audit-*")}
    shares = await redis.zrange(f"{prefix}:{{00}}:audit-shares", 0, -1, withscores=True)
    assert keys == {"entries", "shares", *(f"of:{share.decode()}" for share, _ in shares)}
    assert sum(number for _, number in shares) == ROOM
    assert len(await registry.entries()) == ROOM


async def test_no_two_entries_are_of_one_moment_though_the_clock_steps_back(
    registry: Registry, redis: Redis, prefix: str
) -> None:
    future = 4_000_000_000_000_000
    await redis.hset(f"{prefix}:{{00}}:registry", "noted", future)
    await registry.change((), entries=[b"same", b"same"])
    await registry.note("one", b"same")
    assert [each.us - future for each in await registry.entries()] == [3, 2, 1]
