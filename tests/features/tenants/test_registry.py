"""The registry: records and lists that change together, once, of what was read; and who has what room in its log."""

import asyncio
from random import Random

import pytest
from redis.asyncio import Redis

from store.errors import RegistryFull, RegistryMoved
from store.fsck.check import CheckReport, Fsck
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from store.registry import ADMINISTRATORS, STRANGERS, Change, RecordKey, Registry, repeat
from tests.support.store.audit import dump
from tests.support.store.sample import TENANT

ROOM = 20
"""How many entries administrators may have, and all others together."""

ONE = Change("project/one", b"", b'{"name":"\\u00e9\\n"}')


@pytest.fixture
def registry(store: ConversationHistoryStore) -> Registry:
    """The registry of an empty store."""
    return Registry(store, most_entries=2 * ROOM)


async def test_a_change_of_what_is_otherwise_by_now_changes_nothing(registry: Registry) -> None:
    await registry.change([ONE])
    other = Change("project/other", b"", b"{}")
    with pytest.raises(RegistryMoved):
        await registry.change(
            [other, Change("project/one", b"{}", b"[]")], places=[RecordKey("projects", "other", 5)], entries=[b"x"]
        )
    assert await registry.read("project/one", "project/other") == [ONE.after, b""]
    assert await registry.page("projects") == []
    assert await registry.entries() == []


async def test_a_full_list_takes_nothing_more_but_for_what_is_in_it(registry: Registry) -> None:
    for name in ("a", "b"):
        await registry.change((), places=[RecordKey("keys", name, 2)])
    with pytest.raises(RegistryFull) as full:
        await registry.change([ONE], places=[RecordKey("keys", "c", 2)], entries=[b"x"])
    assert full.value.id == "keys"
    assert await registry.read("project/one") == [b""]
    await registry.change((), places=[RecordKey("keys", "a", 2)])
    await registry.change((), places=[RecordKey("keys", "a", 0)])
    await registry.change((), places=[RecordKey("keys", "c", 2)])
    assert await registry.page("keys") == ["b", "c"]


@pytest.mark.usefixtures("lost_replies")
async def test_a_change_whose_reply_is_lost_happens_once(registry: Registry) -> None:
    await registry.change([ONE], places=[RecordKey("projects", "one", 5)], entries=[b"made"])
    await registry.change(
        [Change(ONE.name, ONE.after, b"")], places=[RecordKey("projects", "one", 0)], entries=[b"gone"]
    )
    assert [each.record for each in await registry.entries()] == [b"gone", b"made"]
    assert await registry.read(ONE.name) == [b""]


async def test_of_many_who_change_the_same_each_one_counts(registry: Registry) -> None:
    async def add(name: str) -> None:
        async def once() -> None:
            (before,) = await registry.read("count")
            await registry.change([Change("count", before, before + name.encode())])

        await repeat(once)()

    await asyncio.gather(*(add(each) for each in "abcd"))
    (count,) = await registry.read("count")
    assert sorted(count.decode()) == list("abcd")


async def test_the_last_use_of_a_key_goes_with_it(registry: Registry) -> None:
    await registry.change([ONE])
    await registry.used({ONE.name: 7})
    assert await registry.last_used([ONE.name, "nobody"]) == [7, None]
    await registry.change([Change(ONE.name, ONE.after, b"")])
    assert await registry.last_used([ONE.name]) == [None]
    await registry.used({ONE.name: 8})  # by a process that has yet to hear of it
    assert await registry.last_used([ONE.name]) == [None]
    assert await registry.last_used([]) == []


async def test_fsck_leaves_it_as_it_is(registry: Registry, redis: Redis, server_url: str, prefix: str) -> None:
    await registry.change(
        [ONE], places=[RecordKey("projects", "one", 5), RecordKey("keys/one", "k", 5)], entries=[b"made"]
    )
    await registry.used({ONE.name: 7})
    for share in (TENANT, STRANGERS):
        await registry.note(share, b"done")
    before = await dump(redis, prefix)
    fsck = Fsck(connect(server_url), prefix=prefix, timeout_seconds=15.0)
    *_, report = [step async for step in fsck.run(repair=True)]
    await fsck.close()
    assert isinstance(report, CheckReport)
    assert (report.found, report.unknown) == (0, 0)
    after = await dump(redis, prefix)
    assert {name: after[name] for name in before} == before


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
