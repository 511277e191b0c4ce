"""Files in a store: whole or not there, bounded, each tenant's apart, and nothing left of what died or was deleted."""

import asyncio
import operator
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from redis.asyncio import Redis

from service.features.files.feature import keep_for_ever
from service.features.operator.fsck import _with_files
from store.archive.archive import Archive
from store.archive.opening import open_archive
from store.backup.archiving.marks import Marks
from store.backup.ownership import join
from store.backup.upkeep.backup import Backup, BackupScope
from store.backup.upkeep.backup_file import BackupHeader
from store.backup.upkeep.erasing import erase
from store.backup.upkeep.restore import Restore, Restored
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat
from store.files import files as module
from store.files.files import (
    PIECE_BYTES,
    RECOVERED,
    ROOT,
    VERSION,
    FileGone,
    FileLimits,
    FileRecord,
    Files,
    FilesFull,
    FileTooLarge,
    folder_of,
    new_id,
)
from store.fsck.check import CheckReport
from store.history.caps import Caps
from store.history.history import ConversationHistoryStore
from store.layout import Layout, StoreRecord, Terms
from tests.support import ROOT as ROOT_FOLDER
from tests.support.archive.opened import new_name, opened, place_of
from tests.support.store.fixtures import OpenStore
from tests.support.waiting import until

TEXT = b"what is said in a file\n"


async def chunks(content: bytes, size: int = 65_536) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def create(files: Files, content: bytes = TEXT, tenant: str = "acme", **how: int) -> FileRecord:
    return await files.store(tenant, FileRecord("", "notes.txt", "user_data", **how), chunks(content))


async def content_of(files: Files, record: FileRecord, tenant: str = "acme") -> bytes:
    return b"".join([piece async for piece in files.read(tenant, record)])


async def left_in(archive: Archive | None) -> list[str]:
    return [] if archive is None else [entry.key for entry in await archive.list(ROOT)]


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 17])
async def test_what_was_stored_is_read(files: Files, size: int) -> None:
    content = (sha256(b"%d" % size).digest() * (size // 32 + 1))[:size]
    record = await create(files, content)

    assert (record.filename, record.purpose, record.bytes) == ("notes.txt", "user_data", size)
    assert await files.find("acme", record.id) == record
    assert await content_of(files, record) == content
    assert await files.delete("acme", record.id)
    assert await files.of("acme") == []


async def test_one_chunk_may_be_all_of_it(files: Files) -> None:
    content = bytes(range(256)) * (2 * PIECE_BYTES // 256 + 1)
    record = await files.store("acme", FileRecord("", "one", "batch"), chunks(content, len(content)))
    assert [len(piece) async for piece in files.read("acme", record)] == [PIECE_BYTES, PIECE_BYTES, 256]
    assert await content_of(files, record) == content


async def test_another_tenant_has_nothing_of_it(files: Files) -> None:
    record = await create(files)

    assert await files.find("globex", record.id) is None
    assert not await files.delete("globex", record.id)
    assert await files.of("globex") == []
    with pytest.raises(FileGone):
        await content_of(files, record, "globex")
    assert await content_of(files, record) == TEXT


async def test_what_was_deleted_is_gone_with_all_that_it_took(files: Files, redis: Redis, prefix: str) -> None:
    kept, record = await create(files, b"another"), await create(files, TEXT * PIECE_BYTES)

    assert await files.delete("acme", record.id)
    assert not await files.delete("acme", record.id)
    assert await files.find("acme", record.id) is None
    with pytest.raises(FileGone):
        await content_of(files, record)
    assert all(kept.id in key for key in await left_in(files.archive))
    await files.delete("acme", kept.id)
    assert await left_in(files.archive) == []
    assert [key async for key in redis.scan_iter(f"{prefix}:*")] == []


@pytest.mark.parametrize(
    "id", ["", "file-", "file-" + "x" * 23, "file-" + "/" * 24, "resp_1", "file-" + "x" * 24 + "\n"]
)
async def test_an_id_that_none_can_have_is_not_found(files: Files, id: str) -> None:
    assert await files.find("acme", id) is None
    assert not await files.delete("acme", id)


async def test_ids_are_in_the_order_of_their_times() -> None:
    ids = [new_id(us) for us in (0, 1, 63, 64, 4095, 4096, 1_764_400_000_000_000, 1_764_400_000_000_001, 1 << 53)]
    assert all(len(id) == len("file-") + 24 for id in ids)
    assert all(before < after for before, after in pairwise(ids))


async def test_files_are_in_the_order_in_which_they_came(files: Files) -> None:
    records = [await create(files) for _ in range(5)]
    await create(files, tenant="globex")
    assert await files.of("acme") == records


async def test_an_append_that_was_not_counted_is_made_again(files: Files) -> None:
    id, content = new_id(1), bytes(range(256)) * 5000
    size = await files.append("acme", id, 0, content[:1000])
    await files.append("acme", id, size, bytes(2 * PIECE_BYTES))
    size = await files.append("acme", id, size, content[1000:])
    record = await files.finish("acme", FileRecord(id, "grown", "batch_output", size))
    assert await content_of(files, record) == content
    assert await files.finish("acme", record) == record
    other = await create(files)
    assert await files.delete("acme", id)
    assert await files.of("acme") == [other]


async def test_a_file_ends_before_an_append_that_was_neither_counted_nor_made_again(files: Files) -> None:
    id = new_id(1)
    size = await files.append("acme", id, 0, TEXT)
    await files.append("acme", id, size, bytes(PIECE_BYTES))
    record = await files.finish("acme", FileRecord(id, "cut", "batch_output", size))
    assert await content_of(files, record) == TEXT
    assert [fault async for fault in files.faults()] == []


# --- bounds ---


def bounded(like: Files, history: ConversationHistoryStore, **limits: int) -> Files:
    return Files(history, like.archive, FileLimits(**limits))


async def test_a_tenant_has_so_many_files(files: Files, history: ConversationHistoryStore) -> None:
    few = bounded(files, history, files=2)
    first = await create(few)
    await create(few)

    with pytest.raises(FilesFull) as full:
        await create(few)
    assert full.value.bound == "files"
    await create(few, tenant="globex")
    await few.delete("acme", first.id)
    await create(few)


async def test_a_tenant_has_so_many_bytes_and_nothing_is_left_of_what_is_refused(
    files: Files, history: ConversationHistoryStore
) -> None:
    small = bounded(files, history, bytes=2 * PIECE_BYTES)
    kept = await create(small, bytes(PIECE_BYTES))

    with pytest.raises(FilesFull) as full:
        await create(small, bytes(PIECE_BYTES + 1))
    assert full.value.bound == "bytes"
    assert all(kept.id in key for key in await left_in(files.archive))
    await create(small, bytes(PIECE_BYTES))


async def test_a_file_has_so_many_bytes(files: Files, history: ConversationHistoryStore) -> None:
    small = bounded(files, history, file_bytes=PIECE_BYTES + 1)
    await create(small, bytes(PIECE_BYTES + 1))
    with pytest.raises(FileTooLarge):
        await create(small, bytes(PIECE_BYTES + 2))
    assert len(await small.of("acme")) == 1


async def test_uploads_at_the_same_time_pass_no_bound_together(files: Files, history: ConversationHistoryStore) -> None:
    small = bounded(files, history, files=5, bytes=8 * PIECE_BYTES)

    async def upload(number: int) -> bool:
        try:
            await create(small, bytes(2 * PIECE_BYTES))
        except FilesFull:
            return False
        return True

    done = await asyncio.gather(*map(upload, range(12)))
    found = await small.of("acme")
    assert len(found) == sum(done) <= 4
    await create(small, bytes(PIECE_BYTES * (8 - 2 * len(found))))


async def test_all_tenants_together_have_so_many_bytes_in_redis(history: ConversationHistoryStore) -> None:
    files = Files(history, limits=FileLimits(held_bytes=2 * PIECE_BYTES))
    kept = await create(files, bytes(PIECE_BYTES))
    await create(files, bytes(PIECE_BYTES), tenant="globex")

    with pytest.raises(FilesFull) as full:
        await create(files, TEXT, tenant="initech")
    assert full.value.bound == "held"
    await files.delete("acme", kept.id)
    await create(files, TEXT, tenant="initech")


async def test_files_leave_a_server_memory_for_turns(history: ConversationHistoryStore, redis: Redis) -> None:
    files = Files(history)
    used = (await redis.info("memory"))["used_memory"]
    await redis.config_set("maxmemory", used + PIECE_BYTES)
    try:
        with pytest.raises(FilesFull) as full:
            await create(files, bytes(PIECE_BYTES))
    finally:
        await redis.config_set("maxmemory", 0)
    assert full.value.bound == "memory"


# --- what ends early ---


async def test_of_an_upload_that_fails_nothing_is_left(files: Files, redis: Redis, prefix: str) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(PIECE_BYTES + 5)
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await files.store("acme", FileRecord("", "broken", "batch"), broken())
    assert await left_in(files.archive) == []
    assert [key async for key in redis.scan_iter(f"{prefix}:*")] == []


async def test_of_an_upload_that_is_cancelled_nothing_is_left(files: Files, redis: Redis, prefix: str) -> None:
    came = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        yield bytes(PIECE_BYTES)
        yield bytes(PIECE_BYTES)
        came.set()
        await asyncio.Event().wait()

    upload = asyncio.create_task(files.store("acme", FileRecord("", "endless", "batch"), endless()))
    await came.wait()
    assert await files.of("acme") == []
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    assert await left_in(files.archive) == []
    assert [key async for key in redis.scan_iter(f"{prefix}:*")] == []


async def test_a_slow_upload_is_no_dead_one(
    files: Files, history: ConversationHistoryStore, redis: Redis, prefix: str
) -> None:
    hasty = Files(history, files.archive, lease_seconds=0.6)
    times: list[float] = []

    async def slow() -> AsyncIterator[bytes]:
        yield bytes(PIECE_BYTES)
        (key,) = [key async for key in redis.scan_iter(f"{prefix}:*files-until")]

        async def renewed() -> bool:
            ((_, until_ms),) = await redis.zrange(key, 0, -1, withscores=True)
            times.append(until_ms)
            return until_ms > times[0] + 600

        await until(renewed)
        yield TEXT

    record = await hasty.store("acme", FileRecord("", "slow", "batch"), slow())
    assert await content_of(files, record) == bytes(PIECE_BYTES) + TEXT
    assert [key async for key in redis.scan_iter(f"{prefix}:*files-until")] == [], "it doesn't expire"


async def test_an_upload_that_was_taken_for_dead_is_refused(files: Files, redis: Redis, prefix: str) -> None:
    async def frozen() -> AsyncIterator[bytes]:
        yield bytes(PIECE_BYTES)
        (key,) = [key async for key in redis.scan_iter(f"{prefix}:*files-until")]
        await redis.zadd(key, dict.fromkeys(await redis.zrange(key, 0, -1), 1))
        assert await files.sweep() == 1
        yield TEXT

    with pytest.raises(FileGone):
        await files.store("acme", FileRecord("", "frozen", "batch"), frozen())
    assert await left_in(files.archive) == []
    assert await files.of("acme") == []


async def test_a_file_expires(files: Files, redis: Redis) -> None:
    now, _ = await redis.time()
    record, other = await create(files, expires_at=now + 1), await create(files, expires_at=now + 3600)
    assert await files.find("acme", other.id) == other

    async def has_expired() -> bool:
        return await files.find("acme", record.id) is None

    await until(has_expired)
    assert await files.of("acme") == [other]
    assert await files.sweep() == 1
    assert all(other.id in key for key in await left_in(files.archive))


async def test_no_file_expires_where_the_layout_record_contradicts_the_process(
    history: ConversationHistoryStore, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, files, record = 0, Files(history), f"{prefix}:{{00}}:store"

    class CountedLayout(Layout):
        async def check(self, *, limits: bool = True) -> StoreRecord | None:
            nonlocal looks
            looks += 1
            return await super().check(limits=limits)

    monkeypatch.setattr("service.features.files.feature.SWEEP_SECONDS", 0.01)
    layout = CountedLayout(history.server, history.keyspace, Terms(1))
    await layout.agree()
    await create(files, expires_at=(await redis.time())[0] + 1)
    (times,) = [key async for key in redis.scan_iter(f"{prefix}:*files-until")]
    await redis.zadd(times, dict.fromkeys(await redis.zrange(times, 0, -1), 1))
    await redis.hset(record, "shards", 2)
    keeping, looks = asyncio.create_task(keep_for_ever(files, history, layout)), 0
    await until(lambda: looks > 5)
    assert await redis.exists(times)
    await redis.hset(record, "shards", 1)

    async def is_kept() -> bool:
        return bool(await redis.exists(times))

    await until(is_kept, wanted=operator.not_)
    keeping.cancel()


async def test_all_of_a_tenant_is_erased(files: Files) -> None:
    for _ in range(3):
        await create(files, bytes(PIECE_BYTES + 1))
    other = await create(files, tenant="globex")

    assert await files.erase("acme") == 3
    assert await files.of("acme") == []
    assert all(other.id in key for key in await left_in(files.archive))
    assert await content_of(files, other, "globex") == TEXT


async def test_lost_replies_change_nothing(files: Files, lost_replies: None) -> None:
    record = await create(files, bytes(2 * PIECE_BYTES + 1))
    assert await content_of(files, record) == bytes(2 * PIECE_BYTES + 1)
    assert await files.delete("acme", record.id)
    assert await left_in(files.archive) == []


# --- an archive ---


async def test_an_archive_that_is_away_loses_no_deletion(
    history: ConversationHistoryStore, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(history, archive)
    record = await create(files)

    async def away(*keys: str) -> None:
        raise ArchiveUnavailable("it is away")

    with monkeypatch.context() as patch:
        patch.setattr(archive, "delete", away)
        assert await files.delete("acme", record.id)
        assert await files.find("acme", record.id) is None
        assert not await files.adopt("acme", record), "it is being deleted"
    assert await left_in(archive) != []
    assert await files.sweep() == 1
    assert await left_in(archive) == []


async def test_a_redis_that_lost_all_knows_the_files_of_its_archive_again(
    history: ConversationHistoryStore, archive: Archive, redis: Redis, prefix: str
) -> None:
    files = Files(history, archive)
    kept, gone = await create(files), await create(files)
    await files.recover()
    await files.delete("acme", gone.id)
    assert await files.recover() == 0
    async for key in redis.scan_iter(f"{prefix}:*"):
        await redis.delete(key)

    assert await files.find("acme", kept.id) is None
    assert await files.recover() == 1
    assert await files.of("acme") == [kept]
    assert await content_of(files, kept) == TEXT
    assert RECOVERED in {key.decode().rpartition(":")[2] async for key in redis.scan_iter(f"{prefix}:*")}


async def make_later(files: Files, record: FileRecord, redis: Redis, prefix: str, *, until: int = 0) -> bytes:
    """Make a file's records those of a later release; with `until` its time has come."""
    later = msgspec.to_builtins(record, builtin_types=(bytes,)) | {"version": VERSION + 1, "shared": True}
    value = msgspec.msgpack.encode(later)
    (key,) = await redis.keys(f"{prefix}:*:files:acme")
    await redis.hset(key, record.id, value)
    if until:
        await redis.zadd(key.replace(b"files:acme", b"files-until"), {f"acme/{record.id}": until})
    if files.archive is not None:
        name = f"{folder_of('acme', record.id)}record"
        stored = await files.archive.get(name)
        assert stored is not None
        await files.archive.put(name, value, only_if=stored.etag)
    return value


async def test_files_of_a_later_release_are_left_alone(
    files: Files, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEPT", 1)
    later, own, old = await create(files), await create(files), await create(files, expires_at=5)
    value = await make_later(files, later, redis, prefix, until=1)
    archived = await left_in(files.archive)
    assert await files.of("acme") == [own]
    assert [record async for _, record in files.all()] == [own]
    for work in (files.find, files.delete):
        with pytest.raises(NewerFormat):
            await work("acme", later.id)
    assert await files.sweep() == 1
    assert [each async for each in files.faults()] == []
    (key,) = await redis.keys(f"{prefix}:*:files:acme")
    assert (await redis.hget(key, later.id), await redis.hget(key, old.id)) == (value, None)
    assert set(archived) - set(await left_in(files.archive)) <= {each for each in archived if old.id in each}
    assert await files.erase("acme") == 2
    assert await left_in(files.archive) == []


@pytest.mark.parametrize("damaged", [False, True])
async def test_an_archived_record_that_can_t_be_read_keeps_no_other_from_being_known(
    history: ConversationHistoryStore, archive: Archive, redis: Redis, prefix: str, damaged: bool
) -> None:
    files = Files(history, archive)
    later, kept, old = await create(files), await create(files), await create(files)
    await make_later(files, later, redis, prefix)
    if damaged:
        await archive.delete(f"{folder_of('acme', later.id)}record")
        await archive.put(f"{folder_of('acme', later.id)}record", b"damaged", only_if=None)
    async for key in redis.scan_iter(f"{prefix}:*"):
        await redis.delete(key)
    with pytest.raises(ArchiveDamaged if damaged else NewerFormat):
        await files.recover()
    assert await files.recover() == 0, "once is enough"
    assert await files.of("acme") == [kept, old]


async def test_a_later_release_reads_the_records_of_an_archive_again(
    history: ConversationHistoryStore, archive: Archive, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(history, archive)
    later = await create(files)
    await make_later(files, later, redis, prefix)
    async for key in redis.scan_iter(f"{prefix}:*"):
        await redis.delete(key)
    with pytest.raises(NewerFormat):
        await files.recover()
    monkeypatch.setattr(module, "VERSION", VERSION + 1)
    assert await files.recover() == 1


async def test_the_sweep_goes_on_where_files_of_the_archive_can_t_be_read(
    history: ConversationHistoryStore, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, swept = Files(history, archive), asyncio.Event()
    await archive.put(f"{folder_of('acme', new_id(1))}record", b"damaged", only_if=None)

    async def sweep() -> int:
        swept.set()
        return 0

    monkeypatch.setattr(files, "sweep", sweep)
    keeping = asyncio.create_task(keep_for_ever(files, history, Layout(history.server, history.keyspace, Terms(1))))
    async with asyncio.timeout(10):
        await swept.wait()
    keeping.cancel()


async def test_a_file_from_before_the_archive_is_still_read(
    history: ConversationHistoryStore, archive: Archive
) -> None:
    record = await create(Files(history))
    assert await content_of(Files(history, archive), record) == TEXT
    assert await Files(history, archive).delete("acme", record.id)


# --- backups, and erasing ---


async def backed_up(history: ConversationHistoryStore, archive: Archive | None, path: Path) -> None:
    async with aclosing(Backup(history, archive).run(path, BackupScope(), release="test")) as steps:
        async for _ in steps:
            pass


async def restored(history: ConversationHistoryStore, archive: Archive | None, path: Path) -> tuple[int, int]:
    async with aclosing(Restore(history, archive).run(path, release="test")) as steps:
        *_, found = [step async for step in steps]
    assert isinstance(found, Restored)
    return found.files, found.files_left


async def test_a_backup_counts_a_file_of_a_later_release_as_one_that_it_lacks(
    history: ConversationHistoryStore, redis: Redis, prefix: str, tmp_path: Path
) -> None:
    files = Files(history)
    later = await create(files)
    await make_later(files, later, redis, prefix)
    await create(files, tenant="globex")
    for tenant, broken in ((None, 1), ("acme", 1), ("globex", 0)):
        scope, path = BackupScope(tenant), tmp_path / f"{tenant}"
        async with aclosing(Backup(history, None).run(path, scope, release="test")) as steps:
            *_, header = [step async for step in steps]
        assert isinstance(header, BackupHeader)
        assert header.broken == broken
    await files.erase("acme")


async def test_a_backup_counts_a_file_that_lacks_a_piece_and_no_deleted_one(
    history: ConversationHistoryStore, redis: Redis, prefix: str, tmp_path: Path
) -> None:
    files = Files(history)
    await files.delete("acme", (await create(files)).id)
    await create(files)
    (pieces,) = await redis.keys(f"{prefix}:*:pieces:*")
    await redis.rename(pieces, f"{prefix}-elsewhere")
    async with aclosing(Backup(history, None).run(tmp_path / "backup", BackupScope(), release="test")) as steps:
        *_, header = [step async for step in steps]
    assert isinstance(header, BackupHeader)
    assert header.broken == 1
    await redis.rename(f"{prefix}-elsewhere", pieces)
    await files.erase("acme")


async def test_a_restore_without_room_for_a_file_is_not_whole(
    history: ConversationHistoryStore, open_store: OpenStore, tmp_path: Path
) -> None:
    files, path = Files(history), tmp_path / "backup"
    await create(files, b"x" * PIECE_BYTES)
    await create(files, b"x")
    await backed_up(history, None, path)
    small = open_store(f"test-{new_name()}", caps=Caps(bytes=2 * PIECE_BYTES))
    async with aclosing(Restore(small).run(path, release="test")) as steps:
        *_, found = [step async for step in steps]
    assert isinstance(found, Restored)
    assert (found.files, found.files_left, found.whole) == (1, 1, False)
    for each in (files, Files(small)):
        await each.erase("acme")


@pytest.mark.parametrize("into", ["redis", "archive"])
async def test_files_come_back_from_a_backup(
    files: Files, history: ConversationHistoryStore, open_store: OpenStore, tmp_path: Path, into: str
) -> None:
    path, content = tmp_path / "backup", bytes(range(256)) * 5000
    if files.archive is not None:
        await join(history, files.archive)
    kept, other = await create(files, content), await create(files, tenant="globex")
    await backed_up(history, files.archive, path)
    await files.delete("acme", kept.id)
    with place_of("sqlite", tmp_path / "other") as place:
        async with opened(place) as archive:
            store, target = open_store(f"test-{new_name()}"), archive if into == "archive" else None
            assert await restored(store, target, path) == (2, 0)
            assert await restored(store, target, path) == (0, 0), "they are there"
            again = Files(store, target)
            found = await again.find("acme", kept.id)
            assert found is not None
            assert (found.filename, found.created_at, found.archived) == (
                kept.filename,
                kept.created_at,
                into == "archive",
            )
            assert await content_of(again, found) == content
            assert await again.find("globex", other.id) is not None
            await again.erase("acme")
            await again.erase("globex")


async def test_a_tenants_files_are_erased_with_its_conversations(
    history: ConversationHistoryStore, archive: Archive
) -> None:
    await join(history, archive)
    files = Files(history, archive)
    await create(files)
    other = await create(files, tenant="globex")
    done = await erase(archive, Marks(archive), "acme", await history.cut_time(), history)
    assert done.files == 1
    assert await files.of("acme") == []
    assert all(other.id in key for key in await left_in(archive))


@pytest.mark.parametrize("kind", ["redis", "archive"])
async def test_an_upload_whose_process_is_killed_leaves_nothing_after_the_sweep(
    history: ConversationHistoryStore, server_url: str, redis: Redis, prefix: str, tmp_path: Path, kind: str
) -> None:
    folder = str(tmp_path / "archive") if kind == "archive" else ""
    command = [sys.executable, "-m", "tests.features.files.uploading", server_url, prefix, folder, "2"]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT_FOLDER, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"stored\n"
    process.kill()
    await process.wait()

    archive = open_archive(f"sqlite://{folder}", Path("/nowhere")) if folder else None
    files = Files(history, archive)
    assert await left_in(archive) != [] if folder else await redis.keys(f"{prefix}:*pieces*") != []
    assert await files.of("acme") == []
    assert await until(files.sweep) == 1
    assert await left_in(archive) == []
    assert [key async for key in redis.scan_iter(f"{prefix}:*")] == []
    if archive is not None:
        await archive.close()


async def test_files_are_there_after_a_restart(
    history: ConversationHistoryStore, archive: Archive, open_store: OpenStore
) -> None:
    kept, own = await create(Files(history, archive)), await create(Files(history))
    later = Files(open_store(), archive)
    assert await later.of("acme") == [kept, own]
    assert [await content_of(later, record) for record in (kept, own)] == [TEXT, TEXT]


async def test_fsck_finds_files_that_are_not_whole(
    history: ConversationHistoryStore, archive: Archive, redis: Redis, prefix: str
) -> None:
    files, there = Files(history, archive), Files(history)
    whole, lacking, unknown = [await create(files, bytes(PIECE_BYTES + 1)) for _ in range(3)]
    held = await create(there)
    assert [each async for each in files.faults()] == []
    await archive.delete(f"{folder_of('acme', lacking.id)}1")
    for key in await redis.keys(f"{prefix}:*pieces*"):
        await redis.delete(key)
    for name in ("files", "file-room"):
        (key,) = await redis.keys(f"{prefix}:*:{name}:acme")
        await redis.hdel(key, unknown.id)
    (key,) = await redis.keys(f"{prefix}:*:file-room:acme")
    await redis.hincrby(key, "*", -unknown.bytes)

    found = {(record.id, word) async for _, record, word in files.faults()}
    assert found == {(lacking.id, "piece"), (held.id, "piece"), (unknown.id, "record")}
    assert [record.id async for _, record, _ in there.faults()] == [held.id]
    report = CheckReport(1, 0, {}, 0, 0, [], 0, 0, 0, [], 0.0)
    report = await _with_files(report, files, repair=True)
    assert (report.found, report.left) == (3, 0)
    assert [each async for each in files.faults()] == []
    assert {record.id for record in await files.of("acme")} == {whole.id, unknown.id}
    for key in await redis.keys(f"{prefix}:*files-held"):
        await redis.delete(key)
