"""Exported turns that come to a store with an archive: deleted stays deleted, and what left memory is there."""

import pytest
from redis.asyncio import Redis

from store.backup.archiving.marks import Marks
from store.backup.records import Saved
from store.backup.turns import Brought, bring_in, look_up, take_out
from store.errors import ArchiveUnavailable, NotFound, ParentNotFound, TenantErased
from store.turn import Messages
from tests.support.archive.kept import Kept, lose
from tests.support.store.sample import TENANT, grow

NEW, KEPT, DELETED = Brought.NEW, Brought.KEPT, Brought.DELETED


@pytest.fixture
def both(archived: Kept) -> Kept:
    """The store asks its archive."""
    archived.store.elsewhere = archived.turns
    return archived


async def exported(both: Kept, *names: str) -> list[Saved]:
    """The turns of a new chain, taken out of the store."""
    ids = await grow(both.store, *names)
    return [await take_out(TENANT, await look_up(both.store, TENANT, id)) for id in ids]


async def imported(both: Kept, *turns: Saved) -> list[Brought | None]:
    """The outcome for each of some turns; None for one whose parent isn't there."""
    outcomes: list[Brought | None] = []
    for turn in turns:
        try:
            outcomes.append(await bring_in(both.store, TENANT, turn))
        except ParentNotFound:
            outcomes.append(None)
    return outcomes


@pytest.mark.parametrize("was_archived", [False, True])
async def test_a_deleted_tree_stays_deleted(both: Kept, redis: Redis, prefix: str, was_archived: bool) -> None:
    turns = await exported(both, "one", "two", "three")
    if was_archived:
        await both.archive_all()
    await both.store.forget_tree(TENANT, turns[0].id)
    noted = [DELETED] * 3 if was_archived else [DELETED, None, None]  # nobody knows the tree of a turn that is nowhere
    assert await imported(both, *turns) == noted
    await both.archive_all()
    for _ in range(2):  # the second time nobody knows of it but the archive
        assert await imported(both, *turns) == [DELETED] * 3
        assert await both.archive_all() == 0
        for turn in turns:
            with pytest.raises(NotFound):
                await both.store.get(TENANT, turn.id)
        await lose(redis, prefix)


async def test_a_turn_that_left_memory_comes_back_without_what_was_erased_of_it(
    both: Kept, redis: Redis, prefix: str
) -> None:
    (turn,) = await exported(both, "one")

    def edit(*_: object) -> tuple[Messages, bytes, bytes]:
        return (), b'{"text":""}', b"[]"

    await both.store.redact(TENANT, turn.id, edit)
    await both.archive_all()
    await lose(redis, prefix)
    assert await imported(both, turn) == [KEPT]
    assert await both.store.get(TENANT, turn.id) == b'{"text":""}'


async def test_what_a_tenant_had_before_all_of_it_was_erased_stays_erased(
    both: Kept, redis: Redis, prefix: str
) -> None:
    before = await exported(both, "before")
    await lose(redis, prefix)
    assert await imported(both, *before) == [NEW]  # the archive was asked for the mark
    after = await exported(both, "after")
    await lose(redis, prefix)
    await Marks(both.archive).erase(TENANT, before[0].created)
    with pytest.raises(TenantErased):
        await imported(both, *before)
    assert await imported(both, *after) == [NEW]


async def test_an_archive_that_is_away_keeps_out_what_is_not_in_memory(both: Kept, redis: Redis, prefix: str) -> None:
    here, lost = await exported(both, "here"), await exported(both, "lost")
    await lose(redis, prefix)
    await imported(both, *here)

    async def away(key: str) -> None:
        raise ArchiveUnavailable(f"{key} can't be asked for")

    both.archive.get = away  # type: ignore[method-assign,assignment]
    assert await imported(both, *here) == [KEPT]
    with pytest.raises(ArchiveUnavailable):
        await imported(both, *lost)
