"""An archive that is an older copy, or without a file, and one that another Redis uses: it is refused by all processes,
memory gives nothing up for it, and an operator may accept it.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from store.archive.opening import open_archive
from store.backup import ownership
from store.backup.archiving.marks import Marks
from store.backup.archiving.shards import end_archive
from store.backup.archiving.store_archive import StoreArchive
from store.backup.heads import key_of
from store.backup.upkeep.reconciling import Reconciler
from store.errors import ArchiveShared, ArchiveWentBack
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.redis.connection import connect
from tests.support.store.model_truth import Process
from tests.support.store.sample import TENANT, grow

FEW = Caps(responses=6)


class Machine:
    """The folder of an archive, a server, and the processes that use both."""

    def __init__(self, url: str, prefix: str, folder: Path) -> None:
        self.url, self.prefix, self.folder, self.copy = url, prefix, folder / "data", folder / "copy"
        self._processes: list[Process] = []

    def start(
        self,
        *,
        beat_seconds: float = 0.0,
        watched_seconds: float = 0.0,
        prefix: str = "",
        shards: int = 1,
        copied: bool = False,
    ) -> Process:
        """A process; with another `prefix` another Redis, which has the same archive. One that names the copy of the
        archive is `copied`.
        """
        store = ConversationHistoryStore(
            connect(self.url), prefix=prefix or self.prefix, caps=FEW, timeout_seconds=15, shards=shards
        )
        archive = open_archive("sqlite", self.copy if copied else self.folder)
        reconcile = Reconciler(store, archive).shard
        seconds: dict[str, Any] = {"after_seconds": 0.0, "beat_seconds": beat_seconds}
        process = Process(
            store, StoreArchive(store, archive, reconcile=reconcile, watched_seconds=watched_seconds, **seconds)
        )
        self._processes.append(process)
        return process

    async def stop(self) -> None:
        while self._processes:
            await self._processes.pop().close()

    def save(self) -> None:
        shutil.copytree(self.folder, self.copy)

    def put_back(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)


@pytest.fixture
async def machine(server_url: str, prefix: str, tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(server_url, prefix, tmp_path)
    yield made
    await made.stop()


async def older(machine: Machine) -> tuple[list[str], list[str]]:
    """An archive that is put back from a copy: the ids of turns that it has, and of later ones that it had."""
    before = await _fill(machine, "a", "b", "c")
    machine.save()
    after = await _fill(machine, "d", "e", "f")
    machine.put_back()
    return before, after


async def _fill(machine: Machine, *names: str) -> list[str]:
    """Conversations that are archived, by a process that is stopped."""
    process = machine.start()
    await process.archive.archive_due()  # so all that changes is noted
    ids = [(await grow(process.store, name))[0] for name in names]
    await process.archive_all()
    await machine.stop()
    return ids


async def test_the_file_of_no_shard_has_no_mark_that_an_older_copy_of_it_could_lack(machine: Machine) -> None:
    await _fill(machine, "a")
    machine.save()
    process = machine.start()
    marks = Marks(process.archive.archive)
    await marks.hold(TENANT, 5)
    await marks.erase("globex", 7)
    await machine.stop()
    shutil.copy(machine.copy / "archive" / "other.db", machine.folder / "archive" / "other.db")
    process = machine.start()
    await process.archive.open()
    marks = Marks(process.archive.archive)
    assert await marks.is_held(TENANT)
    assert await marks.erased_until("globex") == 7


async def test_an_archive_that_the_store_has_left_hears_of_no_deletion_and_has_to_be_accepted(machine: Machine) -> None:
    before, gone, kept = await _fill(machine, "0", "a", "b")
    process = machine.start()
    await process.store.forget(TENANT, before)
    await process.archive_all()
    assert await end_archive(process.store.server, process.store.keyspace)
    await process.store.forget(TENANT, gone, erase=True)
    await machine.stop()
    again = machine.start()
    with pytest.raises(ArchiveWentBack):  # before anything joins them, as a restore asks
        await ownership.check(again.store.server, again.store.keyspace, again.archive.archive)
    with pytest.raises(ArchiveWentBack):
        await again.archive.open()
    with pytest.raises(ArchiveWentBack):
        await again.store.get(TENANT, gone)
    await ownership.accept(again.store.server, again.store.keyspace, again.archive.archive)
    await again.archive.archive_due()
    assert await again.store.get(TENANT, kept)


async def test_running_processes_notice_a_copy_that_is_put_back_and_the_others_hear_of_it(machine: Machine) -> None:
    one, two = machine.start(), machine.start()
    await one.archive.archive_due()
    await two.archive.open()
    archive = one.archive.archive
    head = await archive.get(key_of(0))
    await grow(one.store, "a")
    await one.archive_all()
    now = await archive.get(key_of(0))
    assert head is not None
    assert now is not None
    assert await archive.put(key_of(0), head.value, only_if=now.etag) is not None
    with pytest.raises(ArchiveWentBack):
        await one.archive.archive_due()
    with pytest.raises(ArchiveWentBack):
        await two.archive.archive_due()


async def test_a_copy_of_this_very_moment_doubts_itself_alone_once_the_right_one_goes_on(machine: Machine) -> None:
    before = await _fill(machine, "a", "b")
    machine.save()
    one, two = machine.start(), machine.start()
    await one.archive.archive_due()
    await two.archive.archive_due()
    ids = [*before, (await grow(one.store, "c"))[0]]
    await one.archive_all()
    copied = machine.start(copied=True)
    first = one.store.keyspace.all_shards()[0]
    for number in range(3):
        with pytest.raises(ArchiveWentBack):
            await copied.archive.archive_due()
        noted_again = await one.store.server.command("EXISTS", first.older)
        assert bool(noted_again) == (number == 0), "all that memory has is noted again, once"
        for right in (one, two):
            ids += await grow(right.store, f"{right is one}{number}")
            await right.archive_all()
            assert right.archive.foreign is None
    assert all([await two.store.get(TENANT, id) for id in ids])
    await machine.stop()
    again = machine.start()
    await again.archive.archive_due()
    with pytest.raises(ArchiveWentBack):
        await machine.start(copied=True).archive.open()
    await again.archive_all()


async def test_a_process_that_archives_nothing_notices_too_that_it_reads_of_a_copy(machine: Machine) -> None:
    await _fill(machine, "a")
    machine.save()
    reader, archiver = machine.start(copied=True, beat_seconds=3600.0), machine.start()
    await reader.archive.open()
    await archiver.archive.archive_due()  # and holds the shard from now on
    await grow(archiver.store, "b")
    await archiver.archive_all()
    with pytest.raises(ArchiveWentBack):
        await reader.archive.archive_due()
    await archiver.archive.archive_due()


async def test_a_second_redis_is_refused_while_the_first_uses_the_archive_and_taken_once_it_is_dead(
    machine: Machine,
) -> None:
    one = machine.start()
    await one.archive.archive_due()
    (id,) = await grow(one.store, "a")
    await one.archive_all()
    two = machine.start(prefix=f"{machine.prefix}2", watched_seconds=5.0)

    async def beats() -> None:
        await one.archive.archive_due()

    two_heads = two.archive._heads
    read = two_heads.read

    async def read_while_it_beats(number: int) -> object:
        found = await read(number)
        await beats()
        return found

    two_heads.read = read_while_it_beats  # type: ignore[method-assign, assignment]
    with pytest.raises(ArchiveShared):
        await two.archive.open()
    two_heads.read = read  # type: ignore[method-assign]
    third = machine.start(prefix=f"{machine.prefix}3", watched_seconds=0.01)
    await third.archive.open()  # the first one is silent
    assert await third.archive.turns.find(TENANT, third.store.keyspace.digits(id))
    with pytest.raises(ArchiveShared):
        await one.archive.archive_due()
    one.archive._watched_seconds = 3600.0
    with pytest.raises(ArchiveShared):  # at once, and not after it was watched
        await asyncio.wait_for(one.archive.turns.find(TENANT, one.store.keyspace.digits(id)), 5)


async def test_an_archive_that_was_given_back_is_taken_by_its_own_redis_at_once_and_by_another_one_soon(
    machine: Machine,
) -> None:
    (id,) = await _fill(machine, "a")
    for prefix, seconds in ((machine.prefix, 3600.0), (f"{machine.prefix}2", 0.2)):
        again = machine.start(prefix=prefix, watched_seconds=seconds)
        await again.archive.open()
        assert (await again.store.get(TENANT, id)) is not None
        await machine.stop()
