"""Erasing a tenant, and its hold: on a real server, and on archives of two kinds."""

import pytest

from store.archive.port import ArchiveEntry
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.marks import GONE, HOLD, key_of
from store.backup.archiving.parts import decode
from store.backup.upkeep.erasing import DAMAGED, clear, erase, forget_all
from store.backup.upkeep.walking import marks
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat, NotFound
from store.history.conversations import Conversations, by_hand
from store.keys import digits_of
from tests.support.archive.kept import Kept, micros
from tests.support.store.fixtures import OpenStore
from tests.support.store.sample import TENANT, grow, said

OTHER = "acme-2"  # whose keys come between others in the order of codes
HOUR_US = 3_600_000_000


async def test_all_of_a_tenant_is_erased_and_nothing_of_another(both: Kept) -> None:
    ids = await grow(both.store, "one", "two")
    (other,) = await grow(both.store, "three", tenant=OTHER)
    await both.archive_all()
    await both.archive.put(f"{DAMAGED}t.{TENANT}/00/1/0/2", b"x", only_if=None)
    assert (await erase(both.archive, both.marks, TENANT, micros())).deleted == 2
    assert await both.told(ids[1]) is None
    assert await both.told(other, OTHER) == [other]
    assert not any(f"/t.{TENANT}/" in key for key in await both.keys())
    assert [whose async for whose, _ in marks(both.archive, GONE)] == [TENANT]


async def test_a_list_without_the_mark_that_was_just_made_is_another_s(
    both: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gateway's page with the status 200 is read as a list of nothing."""

    async def nothing(*_: object, **__: object) -> list[ArchiveEntry]:
        return []

    await both.archived("one")
    with monkeypatch.context() as patched:
        patched.setattr(both.archive, "list", nothing)
        with pytest.raises(ArchiveUnavailable, match="lists nothing"):
            await erase(both.archive, both.marks, TENANT, micros())
    assert (await erase(both.archive, both.marks, TENANT, micros())).deleted == 1


async def test_who_still_has_turns_from_before_archives_none_of_them(both: Kept) -> None:
    (id,) = await grow(both.store, "one")
    await erase(both.archive, both.marks, TENANT, micros())
    await both.archive_all()
    assert await both.told(id) is None
    (entry,) = await both.archive.list(f"v1/00/t.{TENANT}/")
    assert entry.size < 10  # a value with nothing in it
    assert await both.archiver.due(both.store.keyspace.all_shards()[0], 9) == []


async def test_what_a_late_archiver_wrote_is_not_told_and_goes_with_the_next_round(both: Kept) -> None:
    (id,) = await grow(both.store, "one")
    await both.archiver._marks.erased_until(TENANT)  # it remembers that nothing was erased
    at = micros()
    await erase(both.archive, both.marks, TENANT, at)
    await both.archive_all()
    assert await both.archive.list(f"v1/00/t.{TENANT}/")
    assert await both.told(id) is None
    assert (await clear(both.archive, TENANT, at)).deleted == 1
    assert not await both.archive.list(f"v1/00/t.{TENANT}/")


async def test_a_tenant_that_comes_back_keeps_what_it_makes_from_then_on(both: Kept) -> None:
    (before,) = await grow(both.store, "before")
    await both.archive_all()
    at = micros()
    await erase(both.archive, both.marks, TENANT, at)
    (after,) = await grow(both.store, "after")
    await both.archive_all()
    assert (await erase(both.archive, both.marks, TENANT, at - HOUR_US)).deleted == 0  # an earlier time changes nothing
    assert (await both.told(before), await both.told(after)) == (None, [after])


@pytest.mark.parametrize("whole", [False, True])
async def test_what_a_tenant_deletes_after_that_stays_known_as_deleted(both: Kept, whole: bool) -> None:
    """Each round clears what a tenant had before; an older copy of Redis may bring back what was deleted later."""
    at = micros() - HOUR_US
    await erase(both.archive, both.marks, TENANT, at)
    (id,) = await grow(both.store, "later")
    await both.archive_all()
    await (both.store.forget_tree if whole else both.store.forget)(TENANT, id)
    await both.archive_all()
    assert (await clear(both.archive, TENANT, at)).deleted == 0
    assert (await both.turns._fate(TENANT, digits_of(id))).gone
    assert (await erase(both.archive, both.marks, TENANT, micros() + HOUR_US)).deleted == 1


async def test_a_time_that_cuts_is_earlier_than_what_any_shard_stores_from_then_on(open_store: OpenStore) -> None:
    store = open_store(shards=3)
    await store.server.command("SET", store.keyspace.all_shards()[1].clock, micros() + HOUR_US)
    at = await store.cut_time()
    for _ in range(12):
        (id,) = await grow(store, "later")
        assert int(await store.server.command("HGET", store.keyspace.turn(TENANT, id).key("node"), "created")) > at


@pytest.mark.parametrize("was_archived", [False, True])
async def test_what_continues_a_turn_from_before_the_mark_goes_on_without_its_words(
    both: Kept, was_archived: bool
) -> None:
    """A response was under way when all of its tenant was erased, so that its tree stayed in memory."""
    root, other = await grow(both.store, "root", "other")
    at = micros()
    (later,) = await grow(both.store, "later", parent=root)
    if was_archived:
        await both.archive_all()
    assert (await erase(both.archive, both.marks, TENANT, at)).cut == was_archived
    (last,) = await grow(both.store, "last", parent=later)
    await both.archive_all()
    await both.leave_memory(root)
    away = ArchivedTurns(both.store, both.archive)
    for id in (root, other):
        assert await away.found(TENANT, digits_of(id)) is None
    assert await away.found(TENANT, digits_of(last))
    assert await away.bring_back(TENANT, digits_of(last))
    assert await said(both.store, last) == ["later", "last"]
    assert list(await both.store.lineage(TENANT, last)) == [root, later, last]
    with pytest.raises(NotFound):
        await both.store.get(TENANT, root)
    (stored,) = [await both.archive.get(key) for key in await both.keys(f"v1/00/t.{TENANT}/")]
    assert stored is not None
    said_by = {turn.id: bool(turn.messages) for turn in decode(stored.value).turns}
    assert said_by == {root: False, later: True, last: True}
    assert (await erase(both.archive, both.marks, TENANT, at)).cut == 0


@pytest.mark.parametrize(("value", "error"), [(b"{", ArchiveDamaged), (b'{"at":1,"version":9}', NewerFormat)])
async def test_a_mark_that_cannot_be_read_is_no_permission(both: Kept, value: bytes, error: type[Exception]) -> None:
    (id,) = await grow(both.store, "one")
    await both.archive_all()
    await both.archive.put(key_of(GONE, TENANT), value, only_if=None)
    with pytest.raises(error):
        await both.told(id)
    await both.archive.put(key_of(HOLD, TENANT), value, only_if=None)
    with pytest.raises(error):
        await erase(both.archive, both.marks, TENANT, micros())


async def test_trees_and_conversations_of_a_tenant_leave_redis_and_no_others(both: Kept) -> None:
    (id,) = await grow(both.store, "one")
    (other,) = await grow(both.store, "other", tenant=OTHER)
    conversations = Conversations(both.store)
    conversation = conversations.new_id()
    first = conversations.first_turn_id(conversation)
    await conversations.create(TENANT, conversation, by_hand(first, None, ()), b"{}")
    assert await forget_all(both.store, TENANT) == (2, 0)
    assert await both.memory.nodes(TENANT, [digits_of(id), digits_of(conversation)]) == {}
    assert await both.store.get(OTHER, other)
