"""Trees larger than what is held of them: an archiver takes them in passes, and who reads or changes one holds a few of
its parts at once.
"""

import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.archiver import DueTree
from store.backup.archiving.keeping import Keeping
from store.backup.archiving.merging import News
from store.backup.archiving.parts import Index, decode
from store.backup.records import Saved
from store.history.history import ConversationHistoryStore
from store.keys import digits_of, id_of
from store.turn import Status, StoredMessage
from tests.support.archive.kept import Open, archive_one
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow

TEXT = 1_000
"""How many characters a turn says, three times."""

PASS = 12_000
"""Some four turns."""

KIB = 1 << 10
MIB = 1 << 20


def texts(count: int) -> list[str]:
    """So many texts that can't be compressed much."""
    random = Random(1)
    return [random.randbytes(TEXT // 2).hex() for _ in range(count)]


class Puts:
    """How much content that wasn't there before comes with each value that is put."""

    def __init__(self, archive: Archive) -> None:
        self.added: list[int] = []
        self._seen = set[str]()
        self._put = archive.put
        archive.put = self.put  # type: ignore[method-assign]

    async def put(self, key: str, value: bytes, *, only_if: str | None) -> str | None:
        turns = () if key.startswith("v1/store/") or key.endswith("/head") else decode(value).turns
        new = [turn for turn in turns if turn.id not in self._seen]
        self._seen.update(turn.id for turn in new)
        self.added.append(sum(turn.payload for turn in new))
        return await self._put(key, value, only_if=only_if)


@pytest.mark.parametrize("deleted", [False, True])
async def test_what_nobody_has_archived_above_a_turn_comes_in_passes(
    before: ConversationHistoryStore, begin: Open, deleted: bool
) -> None:
    ids = await grow(before, *texts(60))
    if deleted:
        for id in ids[1:-1]:
            await before.forget(TENANT, id)
    made = await begin(pass_bytes=PASS)
    ids += await grow(made.store, "new", parent=ids[-1])
    puts = Puts(made.archive)
    assert await archive_one(made.archiver, DueTree(TENANT, digits_of(ids[0]))) == 0
    assert max(puts.added) < PASS + 4 * TEXT
    assert len(puts.added) > (5 if deleted else 12)
    assert await made.told(ids[-1]) == ids


def large(count: int, size: int) -> list[Saved]:
    """A chain of turns with so much content each, which can't be compressed."""
    random, tree = Random(1), "00" + "0123456789abcdef01"
    ids = [id_of(tree + random.randbytes(14).hex()) for _ in range(count)]
    return [
        Saved(
            *(id, Status.COMPLETED, 1, 2, 3, "d" * 32, (StoredMessage("user", random.randbytes(100)),)),
            *(ids[at - 1] if at else None, random.randbytes(size), b"[]"),
        )
        for at, id in enumerate(ids)
    ]


async def keep(archive: Archive, turns: list[Saved], at_once: int = 4, part_bytes: int = 100 * KIB) -> None:
    """Archive turns, a few at a time."""
    keeping = Keeping(archive, part_bytes)
    for at in range(0, len(turns), at_once):
        some = News(turns[at : at + at_once])

        async def news(index: Index, some: News = some) -> News:
            return some

        await keeping.change(TENANT, digits_of(turns[0].id), news)


@contextmanager
def held_within(most: int) -> Iterator[None]:
    """Fail where more bytes are held at once."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < most, f"{peak:,} bytes were held"


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    """An archive in a folder of the test."""
    made = open_archive("sqlite", tmp_path)
    yield made
    await made.close()


@pytest.fixture
def away(open_store: OpenStore, archive: Archive) -> ArchivedTurns:
    """Reads from that."""
    return ArchivedTurns(open_store(), archive)


async def test_a_change_holds_some_parts_of_a_tree_however_large_that_is(archive: Archive) -> None:
    turns = large(160, 100 * KIB)
    await keep(archive, turns[:-4], at_once=16)
    with held_within(4 * MIB):
        await keep(archive, turns[-4:])
    gone = News((), {turn.id: True for turn in turns[:80]})

    async def news(index: Index) -> News:
        return gone

    with held_within(4 * MIB):
        await Keeping(archive).change(TENANT, digits_of(turns[0].id), news)


async def test_a_turn_and_a_way_are_held_without_the_rest_of_their_tree(away: ArchivedTurns, archive: Archive) -> None:
    turns = large(160, 100 * KIB)
    leaf = large(161, 10)[-1]
    fork = Saved(leaf.id, Status.COMPLETED, 1, 2, 3, "d" * 32, (), turns[2].id, b"{}", b"[]")
    await keep(archive, [*turns, fork], at_once=16)
    tip = digits_of(turns[-1].id)
    with held_within(4 * MIB):
        assert await alone(away, tip) == turns[-1]
    with held_within(4 * MIB):
        way = await away.way(TENANT, digits_of(fork.id))
    assert way is not None
    assert way.turns == [*turns[:3], fork]
    all_of_it = await away.way(TENANT, tip)
    assert all_of_it is not None
    assert all_of_it.turns == turns


async def alone(away: ArchivedTurns, digits: str) -> Saved | None:
    """A turn as the archive has it, without those above it."""
    way = await away.found(TENANT, digits)
    return way and way.turns[0]
