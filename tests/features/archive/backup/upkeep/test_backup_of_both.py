"""Backup and restore of a store with an archive: both are in the file, each with what only it knows."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis

from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup import ownership
from store.backup.archiving.archived_turns import ArchivedTurns
from store.backup.archiving.parts import Part, decode, encode, key_of
from store.backup.heads import Heads, Standing
from store.backup.upkeep.backup import BackupScope
from store.backup.upkeep.backup_file import BackupHeader
from store.backup.upkeep.erasing import erase, forget_all
from store.backup.upkeep.restore import Restored
from store.errors import ArchiveReplaced, ArchiveUnnamed, NotFound
from store.history.caps import Caps
from store.history.conversations import Conversations
from store.history.history import ConversationHistoryStore
from store.keys import digits_of
from store.layout import shared_secret
from store.redis.connection import connect
from store.turn import Messages
from tests.support.archive.back import gone_back
from tests.support.archive.kept import Kept, kept, micros
from tests.support.store.backups import back_up, bring_back, contents_of
from tests.support.store.named import add, begun, words
from tests.support.store.sample import TENANT, grow, said

OTHER = "acme-2"


class Both:
    """A store with an archive, which can be saved, and restored to elsewhere."""

    def __init__(self, made: Kept, url: str, prefix: str, folder: Path) -> None:
        self.kept, self.store = made, made.store
        self.url, self.prefix, self.folder = url, prefix, folder
        self.file = folder / "backup"

    async def save(self, beside: str = "", **how: object) -> BackupHeader:
        """Save it, or with `beside` in a file of that suffix."""
        file = self.file.with_suffix(beside)
        return await back_up(self.url, self.prefix, file, archive=_open(self.folder), **how)

    async def restore(self, **how: object) -> Restored:
        """Restore to where it came from."""
        return await bring_back(self.url, self.prefix, self.file, archive=_open(self.folder), **how)  # type: ignore[arg-type]

    async def archived(self, *names: str, tenant: str = TENANT) -> list[str]:
        """A conversation that has left memory."""
        ids = await grow(self.store, *names, tenant=tenant)
        await self.kept.archive_all()
        await self.kept.leave_memory(ids[0], tenant)
        return ids


def _open(folder: Path) -> Archive:
    return open_archive("sqlite", folder)


@pytest.fixture
async def both(server_url: str, prefix: str, tmp_path: Path) -> AsyncIterator[Both]:
    archive = _open(tmp_path)
    async with kept(server_url, prefix, archive) as made:
        yield Both(made, server_url, prefix, tmp_path)
    await archive.close()


@pytest.fixture
async def second(server_url: str, prefix: str, tmp_path: Path) -> AsyncIterator[Both]:
    """Another one, with nothing in it."""
    archive = _open(tmp_path / "second")
    async with kept(server_url, f"{prefix}-2", archive) as made:
        yield Both(made, server_url, f"{prefix}-2", tmp_path / "second")
    await archive.close()


async def moved(both: Both, second: Both, beside: str = "", **how: object) -> Restored:
    """Restore what was saved of one into the other."""
    file, archive = both.file.with_suffix(beside), _open(second.folder)
    return await bring_back(second.url, second.prefix, file, archive=archive, **how)  # type: ignore[arg-type]


async def test_what_is_in_memory_in_the_archive_and_in_both_is_saved_once(both: Both, second: Both) -> None:
    away, here = await both.archived("a", "b"), await grow(both.store, "c", "d")
    parted = await grow(both.store, "e")
    await both.kept.archive_all()
    parted += await grow(both.store, "f", parent=parted[0])
    end = await both.save()
    assert (end.trees, end.turns, end.broken) == (3, 6, 0)
    done = await moved(both, second)
    assert (done.restored, done.kept, done.archived) == (6, 0, True)
    for ids in (away, here, parted):
        assert await second.kept.told(ids[1]) == ids
    assert (await moved(both, second)).kept == 6
    assert (await second.save()).content == end.content


async def test_it_is_restored_under_any_cap_where_there_is_an_archive_and_only_within_it_elsewhere(
    both: Both, second: Both
) -> None:
    for name in "abc":
        await both.archived(name)
    await both.save()
    few = Caps(responses=2)
    assert (await bring_back(both.url, f"{both.prefix}-3", both.file, caps=few)).restored == 2
    assert (await moved(both, second, caps=few)).restored == 3
    assert (await bring_back(both.url, f"{both.prefix}-3", both.file)).restored == 1


async def test_deletions_that_the_archive_was_not_told_of_yet_are_in_the_backup(both: Both, second: Both) -> None:
    ids = await grow(both.store, "a", "b", "c")
    alone, other = await grow(both.store, "alone"), await grow(both.store, "tree", "below")
    await both.kept.archive_all()
    await both.store.forget(TENANT, ids[2])
    await both.store.forget(TENANT, ids[0], erase=True)
    await both.store.forget(TENANT, alone[0])
    await both.store.forget_tree(TENANT, other[0])
    end = await both.save()
    assert (end.turns, end.deleted) == (2, 1)
    await moved(both, second)
    assert await second.kept.told(ids[1]) == ids[:2]
    for gone in (ids[0], ids[2], *alone, *other):
        assert await second.kept.told(gone) is None
    assert (await bring_back(both.url, f"{both.prefix}-3", both.file)).restored == 2
    store = ConversationHistoryStore(connect(both.url), prefix=f"{both.prefix}-3", timeout_seconds=15.0)
    assert await said(store, ids[1]) == ["b"]
    await store.close()


def emptied(messages: Messages, response: bytes, items: bytes) -> tuple[Messages, bytes, bytes]:
    return messages[:0], b"{}", b"[]"


@pytest.mark.parametrize("archived", [False, True])
async def test_an_item_that_was_erased_does_not_come_back_by_an_older_form_of_the_turn(
    both: Both, second: Both, archived: bool
) -> None:
    (id,) = await grow(both.store, "a secret")
    await both.kept.archive_all()
    before = await both.save()
    await both.store.redact(TENANT, id, emptied)
    if archived:
        await both.kept.archive_all()
    after = await both.save(".after")
    assert after.content != before.content
    await moved(both, second, ".after")
    assert (await moved(both, second)).kept == 1
    assert (await second.save()).content == after.content


async def test_what_the_archive_knows_as_deleted_stays_deleted_and_is_told(both: Both) -> None:
    ids, (tree,) = await grow(both.store, "a", "b", "c"), await both.archived("tree")
    erased = await both.archived("erased", tenant=OTHER)
    await both.kept.archive_all()
    await both.save()
    await both.store.forget(TENANT, ids[2])
    await both.store.forget(TENANT, ids[0])
    await both.kept.archive_all()
    await erase(both.kept.archive, both.kept.marks, OTHER, micros())
    done = await both.restore()
    assert (done.restored, done.kept, done.deleted) == (0, 3, 2)
    heads = Heads(both.store.server, both.store.keyspace, both.kept.archive)
    assert await heads.standing(0) is Standing.REDIS_IS_OLDER  # memory may lag
    assert await both.kept.told(ids[1]) == ids[:2]
    assert await both.kept.told(tree) == [tree]
    for gone, tenant in ((ids[2], TENANT), (ids[0], TENANT), (erased[0], OTHER)):
        assert await both.kept.told(gone, tenant) is None


async def test_the_mark_of_an_erased_tenant_is_restored_into_an_archive_and_kept_to_without_one(
    both: Both, second: Both
) -> None:
    await shared_secret(both.store)
    await grow(both.store, "kept")
    (gone,) = await grow(second.store, "gone", tenant=OTHER)
    await both.kept.archive_all()
    await both.kept.marks.hold(TENANT, 5)
    await forget_all(both.store, OTHER)
    await erase(both.kept.archive, both.kept.marks, OTHER, micros())
    await both.save()
    await second.kept.archive_all()
    assert await second.kept.told(gone, OTHER) == [gone]
    (unarchived,) = await grow(second.store, "gone, too", tenant=OTHER)
    await both.kept.marks.erase(OTHER, micros())
    await both.save(".later")
    await grow(second.store, "made since", tenant=OTHER)
    assert (await moved(both, second, ".later")).removed == 2
    for id in (gone, unarchived):
        assert await second.kept.told(id, OTHER) is None
    assert (await moved(both, second, ".later")).removed == 0
    assert await second.kept.marks.is_held(TENANT)


async def test_turns_that_only_the_file_knows_as_deleted_are_deleted_and_counted(both: Both, second: Both) -> None:
    ids, (alone,) = await grow(both.store, "a", "b", "c"), await grow(both.store, "alone")
    await both.kept.archive_all()
    await both.save()
    assert (await moved(both, second)).removed == 0
    await both.store.forget(TENANT, ids[0])
    await both.store.forget_tree(TENANT, alone)
    await both.kept.archive_all()
    await both.save(".later")
    assert (await moved(both, second, ".later")).removed == 2
    assert await second.kept.told(ids[2]) == ids
    for id in (ids[0], alone):
        assert await second.kept.told(id) is None
    assert (await moved(both, second, ".later")).removed == 0


@pytest.mark.parametrize("same", [True, False], ids=["the same store", "another store"])
async def test_marks_of_another_store_and_of_what_was_not_asked_for_stay_in_the_file(
    both: Both, second: Both, same: bool
) -> None:
    secret = await shared_secret(both.store)
    await shared_secret(second.store, entropy=lambda size: secret if same else b"y" * size)
    (kept_one,) = await grow(both.store, "kept")
    (stays,) = await grow(second.store, "stays", tenant=OTHER)
    await both.kept.archive_all()
    await erase(both.kept.archive, both.kept.marks, OTHER, await both.store.cut_time())
    await both.kept.marks.hold(TENANT, 5)
    await both.save()
    await second.kept.archive_all()
    for only in ({"tree": kept_one}, {"tenant": TENANT}) if same else ({},):
        await moved(both, second, only=only)
        assert await second.kept.told(stays, OTHER) == [stays]
    assert await second.kept.marks.is_held(TENANT) == same  # it was asked for with the tenant


async def test_what_of_the_archive_can_not_be_read_is_counted_and_all_else_is_saved(both: Both) -> None:
    ids, other, forged = [await both.archived(*names) for names in ("ab", "c", "def")]
    archive = both.kept.archive
    stored = await archive.get(key := key_of(TENANT, digits_of(forged[0])))
    assert stored is not None
    first, *rest = decode(stored.value).turns
    turns = (first, msgspec.structs.replace(rest[0], response=b"no JSON"), *rest[1:])
    await archive.put(key, encode(Part(turns)), only_if=stored.etag)
    stored = await archive.get(key := key_of(TENANT, digits_of(other[0])))
    assert stored is not None
    await archive.put(key, stored.value[:-1], only_if=stored.etag)
    await archive.put(key_of(TENANT, digits_of(ids[0]), 1), b"never counted", only_if=None)
    missing = key_of(TENANT, digits_of(both.store.new_id()))
    await archive.put(missing, encode(Part(parts=2)), only_if=None)
    end = await both.save()
    assert (end.turns, end.broken) == (3, 4)
    assert await contents_of(both.file) == end


async def test_one_tenant_or_one_conversation_is_saved_and_restored_out_of_both(both: Both, second: Both) -> None:
    away, (here,) = await both.archived("a", "b"), await grow(both.store, "here")
    other = await both.archived("c", tenant=OTHER)
    scopes = (BackupScope(tenant=OTHER), BackupScope(tree=away[1]), BackupScope(tree=here))
    assert [(await both.save(f".{at}", asked=scope)).turns for at, scope in enumerate(scopes)] == [1, 2, 1]
    for nowhere in (BackupScope(tree=both.store.new_id(here)), BackupScope(tree=away[0], tenant=OTHER)):
        with pytest.raises(NotFound):
            await both.save(asked=nowhere)
    assert (await both.save()).turns == 4
    assert (await moved(both, second, only={"tree": away[0]})).restored == 2
    assert (await moved(both, second, only={"tenant": OTHER})).restored == 1
    assert await second.kept.told(other[0], OTHER) == other
    assert await second.kept.told(here) is None


async def test_a_store_whose_archive_is_not_the_one_that_is_named_is_not_saved(both: Both) -> None:
    await both.archived("a")
    await ownership.join(both.store, both.kept.archive)
    with pytest.raises(ArchiveUnnamed):
        await back_up(both.url, both.prefix, both.file)
    with pytest.raises(ArchiveReplaced):
        await back_up(both.url, both.prefix, both.file, archive=_open(both.folder / "other"))
    await both.save()
    with pytest.raises(ArchiveUnnamed):
        await bring_back(both.url, both.prefix, both.file)
    with pytest.raises(ArchiveReplaced):
        await bring_back(both.url, both.prefix, both.file, archive=_open(both.folder / "other"))


LONGER = b'{"metadata":{"topic":"a longer description"}}'


async def went_on(both: Both) -> str:
    """A conversation that was saved, and went on since."""
    named = Conversations(both.store)
    id = await begun(named, text="first")
    await add(named, id, "early")
    await both.kept.archive_all()
    await both.save()
    await add(named, id, "a", "b")
    await named.amend(TENANT, id, LONGER)
    return id


async def last_form(of: Both, redis: Redis, id: str) -> tuple[Sequence[str], bytes]:
    """The words of a conversation, and how it is shown, as the archive has both once Redis has lost all."""
    await gone_back(redis, of.prefix, {})
    of.store.elsewhere = ArchivedTurns(of.store, of.kept.archive)
    named = Conversations(of.store)
    return await words(named, id), await named.get(TENANT, id)


IT = (["first", "early", "a", "b"], LONGER)


async def test_a_backup_of_before_takes_no_conversation_back(both: Both, redis: Redis) -> None:
    id = await went_on(both)
    await both.kept.archive_all()
    done = await both.restore()
    assert (done.restored, done.kept, done.conflicts) == (0, 3, 0)
    assert await last_form(both, redis, id) == IT


async def test_a_backup_has_a_conversation_as_memory_has_it_and_brings_it_over_an_older_archive(
    both: Both, second: Both, redis: Redis
) -> None:
    id = await went_on(both)
    assert (await both.save(".after")).turns == 5
    assert (await moved(both, second)).restored == 3
    assert (await moved(both, second, ".after")).restored == 2
    assert await last_form(second, redis, id) == IT
