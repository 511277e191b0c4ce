"""Verifying an archive: each fault is found, nothing sound is blamed, and a repair loses nothing that could be read."""

import random

import pytest

from store.backup.archiving.keeping import MOST_FAULTS
from store.backup.archiving.parts import Part, decode, encode
from store.backup.upkeep import walking
from store.backup.upkeep.erasing import DAMAGED
from store.backup.upkeep.verifying import Verified, Verify
from store.codec import squeeze, unsqueeze
from store.errors import NotFound
from tests.support.archive.kept import Kept
from tests.support.store.sample import TENANT, grow


async def verified(both: Kept, *, repair: bool = False, most: int | None = None, memory: bool = True) -> Verified:
    """What a check comes to."""
    verify = Verify(both.archive, both.store if memory else None, random.Random(7))
    return [report async for report in verify.run(most=most, repair=repair)][-1]


async def whats(both: Kept, **more: bool) -> list[str]:
    return [fault.what for fault in (await verified(both, **more)).faults]


async def test_nothing_sound_is_blamed(both: Kept) -> None:
    one, *_ = await grow(both.store, "one", "two")
    (gone,) = await grow(both.store, "branch", parent=one)
    await grow(both.store, "elsewhere", tenant="acme-2")
    await both.archive_all()
    await both.store.forget(TENANT, gone)
    await both.archive_all()
    await grow(both.store, "not archived yet")
    report = await verified(both)
    assert (report.found, report.trees, report.turns, report.compared) == (0, 2, 3, 3)


@pytest.mark.parametrize("is_archived", [False, True])
@pytest.mark.parametrize("erase", [False, True])
async def test_a_deletion_that_is_not_archived_yet_is_noted(both: Kept, erase: bool, is_archived: bool) -> None:
    gone, top, last = await grow(both.store, "one", "two", "three")
    if is_archived:
        await both.archive_all()
    for id in (gone, top):
        await both.store.forget(TENANT, id, erase=erase)
    assert await whats(both) == []
    assert await whats(both, repair=True) == []
    await both.archive_all()
    assert await whats(both) == []
    await both.archive.delete(*await both.keys())
    assert await whats(both, repair=True) == ["not-archived"] * 3
    await both.archive_all()
    assert (await whats(both), await both.told(last)) == ([], [gone, top, last])
    assert (await both.told(gone), await both.told(top)) == (None, None)


async def test_a_damaged_value_is_moved_aside_and_what_redis_has_of_it_is_archived_anew(both: Kept) -> None:
    ids, key = await both.archived("one", "two")
    await both.overwrite(key, b"hA\x01\0 damaged")
    report = await verified(both)
    assert [fault.what for fault in report.faults] == ["unreadable", "not-archived", "not-archived"]
    assert (report.left, await both.keys()) == (3, [key])
    assert (await verified(both, repair=True)).left == 0
    (copy,) = await both.keys(DAMAGED)
    found = await both.value(copy)
    assert found.value == b"hA\x01\0 damaged"
    assert copy.split("/")[2] == f"t.{TENANT}"
    await both.archive_all()
    assert await both.told(ids[1]) == ids
    report = await verified(both)
    assert (report.found, report.moved) == (0, 1)


async def test_other_parts_can_be_read_after_the_first_one_was_damaged(both: Kept) -> None:
    ids, key = await both.archived("one", "two")
    stored = await both.value(key)
    first, second = decode(stored.value).turns
    await both.overwrite(key, encode(Part((first,), parts=2)))
    await both.overwrite(f"{key[:-1]}1", encode(Part((second,))))
    assert await both.told(ids[1]) == ids
    await both.overwrite(key, b"")
    assert (await verified(both, repair=True)).left == 0
    await both.archive_all()
    assert await both.told(ids[1]) == ids


async def test_a_value_of_a_later_release_is_left_alone(both: Kept) -> None:
    _, key = await both.archived("one")
    await both.overwrite(key, b"hA\x02 of a later release")
    report = await verified(both, repair=True, memory=False)
    assert ([fault.what for fault in report.faults], report.newer, report.left) == (["newer"], 1, 1)
    found = await both.value(key)
    assert found.value == b"hA\x02 of a later release"


@pytest.mark.parametrize(("known", "later"), [(b"\xa9completed", b"\xa6paused"), (b"\xa4turn", b"\xa4link")])
async def test_a_status_or_a_kind_of_a_later_release_is_left_alone(both: Kept, known: bytes, later: bytes) -> None:
    _, key = await both.archived("one")
    stored = await both.value(key)
    value = stored.value[:4] + squeeze(unsqueeze(stored.value[4:]).replace(known, later))
    await both.overwrite(key, value)
    report = await verified(both, repair=True, memory=False)
    assert ([fault.what for fault in report.faults], report.newer, report.left) == (["newer"], 1, 1)
    found = await both.value(key)
    assert found.value == value
    assert await both.keys(DAMAGED) == []


async def test_a_part_that_is_missing_is_told_and_an_empty_one_takes_its_place(both: Kept) -> None:
    _, key = await both.archived("one")
    stored = await both.value(key)
    await both.overwrite(key, encode(Part(decode(stored.value).turns, parts=2)))
    assert await whats(both) == ["no-part"]
    assert (await verified(both, repair=True)).left == 0
    assert await whats(both) == []
    await both.overwrite(key, encode(Part(parts=1 << 40)))
    assert MOST_FAULTS <= (await verified(both, memory=False)).found < 2 * MOST_FAULTS


async def test_a_turn_without_its_parent_is_told(both: Kept) -> None:
    _, key = await both.archived("one", "two")
    stored = await both.value(key)
    await both.overwrite(key, encode(Part(decode(stored.value).turns[1:])))
    assert await whats(both, memory=False) == ["no-parent"]
    assert (await verified(both, repair=True)).left == 1
    await both.archive_all()
    assert await whats(both) == []


async def test_what_the_archive_lost_is_told_and_noted_again(both: Kept) -> None:
    ids = await grow(both.store, "one", "two")
    await both.archive_all()
    await both.archive.delete(*await both.keys())
    assert await whats(both) == ["not-archived"] * 2
    assert await whats(both, repair=True) == ["not-archived"] * 2
    assert await whats(both) == []  # noted
    await both.archive_all()
    assert await both.told(ids[1]) == ids


async def test_what_is_gone_and_readable_in_redis_is_told(both: Kept) -> None:
    (id,), key = await both.archived("one")
    await both.overwrite(key, encode(Part(gone={id: False})))
    assert await whats(both) == ["gone-readable"]
    assert await whats(both, memory=False) == []
    assert (await verified(both, repair=True)).left == 0
    with pytest.raises(NotFound):
        await both.store.get(TENANT, id)
    assert await whats(both) == []


async def listed(both: Kept, monkeypatch: pytest.MonkeyPatch, most: int) -> tuple[Verified, int]:
    """The result for a sample, and how many pages of keys it took."""
    pages, list_page = 0, both.archive.list

    async def counted(*of: object, **more: object) -> object:
        nonlocal pages
        pages += 1
        return await list_page(*of, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(both.archive, "list", counted)
    return await verified(both, most=most), pages


async def test_a_sample_is_one_walk(both: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        await grow(both.store, str(number), tenant=f"acme-{number % 7}")
    await both.archive_all()
    report, pages = await listed(both, monkeypatch, 40)
    assert (report.trees, report.found, pages) == (40, 0, 1)


async def test_a_sample_of_a_large_archive_is_some_rows_of_trees(both: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walking, "WALKED", 20)
    monkeypatch.setattr(walking, "ROWS", 5)
    for number in range(60):
        await grow(both.store, str(number), tenant=f"acme-{number % 2}")
    await both.archive_all()
    report, pages = await listed(both, monkeypatch, 15)
    assert (0 < report.trees <= 15, report.found) == (True, 0)
    assert pages < 15, "one for the walk, some for the folders, and one for each row"
