"""Trees that have become too old go from an archive, but for what Redis still has and what is on hold."""

import asyncio
import itertools
import time
from contextlib import suppress

import pytest

from service.features.archive.chores import expire_for_ever
from store.backup.archiving.parts import decode, key_of
from store.backup.archiving.store_archive import StoreArchive
from store.backup.upkeep.expiring import EMPTY_DAYS, Expired, expire, expire_daily
from store.backup.upkeep.memory import Memory
from store.backup.upkeep.reconciling import Reconciler
from store.errors import ArchiveUnavailable, ClockDoubted, StoreUnavailable
from store.keys import digits_of
from store.layout import Layout, Terms
from tests.support.archive.kept import DAY, Kept, begun, micros
from tests.support.archive.opened import Place, new_name, opened
from tests.support.archive.steps import tell_of_steps
from tests.support.store.sample import TENANT, grow

HELD = "held"


async def later(both: Kept, days: float) -> Expired:
    """What a round does so many days from now, of trees that are 30 days old."""
    return await expire(both.archive, both.memory, 30, now=time.time() + days * DAY)


async def archived(both: Kept, *names: str) -> list[str]:
    """The roots of trees that only the archive has."""
    roots = [(await grow(both.store, name, f"{name} again"))[0] for name in names]
    await both.archive_all()
    for root in roots:
        await both.leave_memory(root)
    return roots


async def test_a_tree_goes_once_it_is_too_old_and_leaves_nothing_in_the_end(both: Kept) -> None:
    (root,) = await archived(both, "one")
    assert (await later(both, 29)).deleted == 0
    assert await both.told(root) == [root]
    assert (await later(both, 31)).deleted == 1
    assert await both.told(root) is None
    assert (
        sum(entry.size for entry in await both.archive.list("v1/00/") if "/t." in entry.key) < 40
    )  # for who reads it just now
    await later(both, 62)
    assert await both.keys() == []


async def test_what_is_on_hold_stays(both: Kept) -> None:
    (root,) = await archived(both, "one")
    await both.marks.hold(TENANT, micros())
    assert await later(both, 31) == Expired(looked=1, held=1)
    assert await both.told(root) == [root]
    await both.marks.release(TENANT)
    assert (await later(both, 31)).deleted == 1


async def test_what_can_not_be_read_stays(both: Kept) -> None:
    await archived(both, "one")
    (key,) = await both.keys()
    await both.overwrite(key, b"hA\x09 of a later release")
    assert await later(both, 31) == Expired(looked=1, unreadable=1)
    assert await both.keys() == [key]


@pytest.mark.parametrize("days", [0, 400])
async def test_a_tree_that_was_wholly_deleted_leaves_nothing_in_the_end(both: Kept, days: float) -> None:
    async def after(passed: float) -> int:
        return (await expire(both.archive, both.memory, days, now=time.time() + passed * DAY)).deleted

    (kept,) = await archived(both, "kept")
    whole, leaves = await grow(both.store, "whole"), await grow(both.store, "one", "two")
    await both.store.forget_tree(TENANT, whole[0])
    await both.archive_all()
    for id in leaves:
        await both.store.forget(TENANT, id)
    await both.archive_all()
    assert len(await both.keys(f"v1/00/t.{TENANT}/")) == 3
    assert [await after(EMPTY_DAYS + passed) for passed in (-1, 1, 2)] == [0, 2, 0]
    assert await both.keys(f"v1/00/t.{TENANT}/") == [key_of(TENANT, digits_of(kept))]
    assert await both.told(kept) == [kept]


async def test_the_ids_of_what_was_deleted_stay_as_long_however_soon_trees_go(both: Kept) -> None:
    async def known_after(passed: float) -> set[str]:
        """The ids that the archive says are deleted, once it was looked through so many days from now."""
        await later(both, passed)
        parts = [decode((await both.value(key)).value) for key in await both.keys(f"v1/00/t.{TENANT}/")]
        assert all(part.turns == () for part in parts)
        return {id for part in parts for id in (*part.gone, *part.gone_trees)}

    (whole,), (root, leaf) = await grow(both.store, "whole"), await grow(both.store, "one", "two")
    await both.archive_all()
    await both.store.forget_tree(TENANT, whole)
    await both.store.forget(TENANT, leaf)
    await both.archive_all()
    await both.leave_memory(root)
    assert [await known_after(days) for days in (31, EMPTY_DAYS - 1)] == [{whole, leaf}] * 2
    await later(both, EMPTY_DAYS + 1)
    assert await both.keys() == []


class Died(BaseException):
    """A process is no more."""


class Mortal:
    """Dies before a step, once it has a number."""

    number: int | None = None

    async def at(self, _: str) -> None:
        if self.number is not None:
            self.number -= 1
            if self.number == 0:
                raise Died


async def test_whoever_dies_at_any_step_leaves_no_half_of_a_tree_and_nothing_that_the_next_one_does_not_end(
    server_url: str, prefix: str, place: Place
) -> None:
    async with opened(place.apart(new_name())) as archive:
        both = await begun(server_url, prefix, archive, part_bytes=1)
        held, (used,) = await grow(both.store, "on hold", "again", tenant=HELD), await grow(both.store, "in memory")
        await both.archive_all()
        await both.leave_memory(held[0], HELD)
        await both.marks.hold(HELD, micros())
        mortal = Mortal()
        tell_of_steps(StoreArchive(both.store, archive, reconcile=Reconciler(both.store, archive).shard), mortal.at)
        for step in itertools.count(1):
            old = await grow(both.store, "one", "two", "three")
            await both.archive_all()
            await both.store.forget(TENANT, old[2])
            await both.archive_all()
            await both.leave_memory(old[0])
            mortal.number = step
            with suppress(Died):
                await later(both, 31)
            is_over, mortal.number = mortal.number > 0, None
            assert await both.told(old[1]) in (old[:2], None)
            await later(both, 31)
            assert [await both.told(id) for id in old] == [None] * 3
            assert await both.told(held[1], HELD) == held
            assert await both.told(used) == [used]
            gone = decode((await both.value(key_of(TENANT, digits_of(old[0])))).value)
            assert (gone.turns, gone.gone) == ((), {old[2]: False})
            if is_over:
                break
            await archive.delete(key_of(TENANT, digits_of(old[0])))  # or each round takes more steps than the last
        assert step > 20
        await both.store.close()


@pytest.mark.parametrize("error", [ArchiveUnavailable("away"), StoreUnavailable("away")])
async def test_a_day_on_which_one_of_both_is_away_is_not_over(
    both: Kept, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    await archived(both, "one")
    archive = StoreArchive(both.store, both.archive, reconcile=Reconciler(both.store, both.archive).shard)

    async def refuse(*_: object) -> None:
        raise error

    now = await both.store.now()
    assert await expire_daily(archive, 30, now=now, own=now) == 0
    later = now + 2 * DAY
    with monkeypatch.context() as patched:
        patched.setattr(Memory, "nodes", refuse)
        with pytest.raises(type(error)):
            await expire_daily(archive, 1, now=later, own=later)
    assert await expire_daily(archive, 1, now=later, own=later) == 1


async def test_nothing_goes_where_the_layout_record_contradicts_the_process(
    both: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    expired = asyncio.Event()

    async def expire_one(*_: object, **__: object) -> None:
        expired.set()

    monkeypatch.setattr("service.features.archive.chores.EXPIRE_SECONDS", 0.01)
    monkeypatch.setattr("service.features.archive.chores.expire_daily", expire_one)
    archive = StoreArchive(both.store, both.archive, reconcile=Reconciler(both.store, both.archive).shard)
    await Layout(both.store.server, both.store.keyspace, Terms(2)).agree()
    expiring = asyncio.create_task(
        expire_for_ever(Layout(both.store.server, both.store.keyspace, Terms(1)), archive, 30)
    )
    await asyncio.sleep(0.2)
    assert not expired.is_set()
    await both.store.server.command("HSET", both.store.keyspace.all_shards()[0].store, "shards", 1)
    await asyncio.wait_for(expired.wait(), 10)
    expiring.cancel()


@pytest.mark.parametrize("jump", [1_000, -1_000])
async def test_a_clock_that_jumps_deletes_nothing_and_one_that_goes_on_does(both: Kept, jump: float) -> None:
    (root,) = await archived(both, "one")
    reconciler, began = Reconciler(both.store, both.archive), time.time()
    archive = StoreArchive(both.store, both.archive, reconcile=reconciler.shard)

    async def on_day(day: float) -> int | None:
        return await expire_daily(archive, 30, now=began + day * DAY, own=began + day * DAY)

    assert [await on_day(day) for day in (0, 0.9, 1, 2)] == [0, None, 0, 0]
    with pytest.raises(ClockDoubted):
        await on_day(2 + jump)
    assert await both.told(root) == [root]
    with pytest.raises(ClockDoubted):  # it was put right
        await on_day(3)
    assert await both.told(root) == [root]
    assert [await on_day(3 + 2 * day) for day in range(1, 15)] == [0] * 13 + [1]
    assert await both.told(root) is None


async def test_a_process_with_another_time_than_the_store_deletes_nothing_and_leaves_the_day_to_others(
    both: Kept,
) -> None:
    (root,) = await archived(both, "one")
    archive = StoreArchive(both.store, both.archive, reconcile=Reconciler(both.store, both.archive).shard)
    now = await both.store.now()
    for day in range(3):
        with pytest.raises(ClockDoubted, match="differ"):
            await expire_daily(archive, 30, now=now + day * DAY, own=now + (400 + day) * DAY)
    assert await expire_daily(archive, 30, now=now, own=now) == 0
    assert await both.told(root) == [root]
