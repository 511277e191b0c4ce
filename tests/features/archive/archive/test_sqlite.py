"""The archive's files: whose they are, what is in which, and what happens where a disk is full or a file is broken."""

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from store.archive.archive import Archive
from store.archive.port import Bounds
from store.archive.sqlite import FORMAT, ShardFile, open_file
from store.errors import ArchiveRefused, ArchiveUnavailable, NewerFormat
from tests.support.archive.opened import Place, opened
from tests.support.store.disks import MIB, fill, small_disk
from tests.support.waiting import until

KEY = "v1/0a/default/00ff/0"
PUT = "INSERT INTO object (key, etag, changed, value) VALUES (?, ?, ?, ?)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "archive"


@pytest.fixture
async def archive(folder: Path) -> AsyncIterator[Archive]:
    async with opened(Place("sqlite", f"sqlite://{folder}")) as archive:
        yield archive


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from small_disk(tmp_path / "disk", 8)


async def test_its_files_are_its_owner_s_alone(archive: Archive, folder: Path) -> None:
    before = os.umask(0)
    try:
        await archive.put(KEY, b"x", only_if=None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(folder)}
    files = {f"{name}.db{behind}" for name in ("0a", "other") for behind in ("", "-wal", "-shm")}
    assert modes == dict.fromkeys({"lock"} | files, 0o600)


@pytest.mark.parametrize("again", [False, True])
async def test_a_write_is_on_the_disk_when_it_returns(folder: Path, again: bool) -> None:
    for _ in range(1 + again):
        file = ShardFile(folder / "0a.db", busy_seconds=5.0)
        full = await file.write(lambda opened: opened.execute("PRAGMA synchronous").fetchone())
        overwritten = await file.write(lambda opened: opened.execute("PRAGMA secure_delete").fetchone())
        await file.close()
    assert (full, overwritten) == ((2,), (1,))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are emptied at once."""
    monkeypatch.setattr("store.archive.sqlite.LOG_SECONDS", 0.01)


def files_with(folder: Path, word: bytes) -> list[str]:
    """The names of the files that have some bytes."""
    return sorted(path.name for path in folder.iterdir() if word in path.read_bytes())


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("size", [100, 100_000])
async def test_what_was_erased_is_soon_in_none_of_its_files(archive: Archive, folder: Path, size: int) -> None:
    secret, keys = b"SECRET" + os.urandom(16), [f"v1/0a/default/{number:04d}/0" for number in range(4)]
    etags = [await archive.put(key, os.urandom(size) + secret + os.urandom(size), only_if=None) for key in keys]
    assert files_with(folder, secret)
    await archive.put(keys[0], b"x", only_if=etags[0])
    await archive.put(keys[1], os.urandom(3 * size), only_if=etags[1])
    await archive.delete(*keys[2:])
    await until(lambda: not files_with(folder, secret) and (folder / "0a.db-wal").stat().st_size == 0)


async def test_what_was_erased_is_in_none_of_its_files_once_whoever_did_it_is_done(
    archive: Archive, folder: Path
) -> None:
    async with opened(Place("sqlite", f"sqlite://{folder}")) as command:  # while the service has the file open
        etag = await archive.put(KEY, b"SECRET", only_if=None)
        await command.put(KEY, b"x", only_if=etag)
    assert not files_with(folder, b"SECRET")
    assert await archive.get(KEY)


async def test_a_file_that_somebody_holds_is_unavailable_within_the_deadline(archive: Archive, folder: Path) -> None:
    await archive.put(KEY, b"x", only_if=None)
    holder = sqlite3.connect(folder / "0a.db", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    hasty = Bounds(total_seconds=3.0, request_seconds=0.8)
    async with opened(Place("sqlite", f"sqlite://{folder}"), hasty) as other:
        assert await other.get(KEY), "who writes doesn't keep others from reading"
        with pytest.raises(ArchiveUnavailable):
            await other.put(f"{KEY}1", b"x", only_if=None)
        holder.execute("COMMIT")
        await other.put(f"{KEY}2", b"x", only_if=None)
        assert await other.get(f"{KEY}2")
    holder.close()


async def test_a_full_disk_is_told_and_nothing_that_was_there_is_lost(disk: Path) -> None:
    async with opened(Place("sqlite", f"sqlite://{disk / 'archive'}")) as archive:
        await archive.put(KEY, b"first", only_if=None)
        filler = fill(disk, but=MIB)
        kept = [KEY]

        async def keep_until_refused() -> None:
            for number in range(1000):
                key = f"v1/0a/default/{number:04d}/0"
                assert await archive.put(key, os.urandom(50_000), only_if=None)
                kept.append(key)

        with pytest.raises(ArchiveRefused, match=r"the disk of \S+ is full; make room on it"):
            await keep_until_refused()
        assert all([await archive.get(key) for key in kept])
        assert [entry.key for entry in await archive.list("")] == sorted(kept)
        filler.unlink()
        assert await archive.put("v1/0a/default/after/0", b"x", only_if=None)
        assert [entry.key for entry in await archive.list("")] == sorted([*kept, "v1/0a/default/after/0"])


async def test_all_is_read_from_a_full_disk_while_others_write_to_it(disk: Path) -> None:
    """A file that is opened again takes room on its disk, which another one may have taken since it was closed."""
    shards = ("0a", "0b", "0c")
    async with opened(Place("sqlite", f"sqlite://{disk / 'archive'}")) as archive:
        for shard in shards:
            await archive.put(f"v1/{shard}/default/00ff/0", shard.encode(), only_if=None)
        fill(disk, but=0)
        for number in range(100):
            writes = [archive.put(f"v1/{each}/default/{number}/0", bytes(30_000), only_if=None) for each in shards]
            reads = [archive.get(f"v1/{each}/default/00ff/0") for each in shards]
            refusals = asyncio.gather(*writes, return_exceptions=True)
            found = await asyncio.gather(*reads)
            assert all(isinstance(error, ArchiveRefused) for error in await refusals)
            assert [each and each.value for each in found] == [shard.encode() for shard in shards]


@pytest.mark.usefixtures("soon")
async def test_a_log_that_has_no_room_in_its_file_is_emptied_once_there_is_some(disk: Path) -> None:
    path, said = disk / "0a.db", list[str]()

    def connect(path: Path, busy_seconds: float) -> sqlite3.Connection:
        opened = open_file(path, busy_seconds)
        opened.set_trace_callback(said.append)
        return opened

    def tries() -> int:
        return sum("wal_checkpoint" in each for each in said)

    file = ShardFile(path, 5.0, connect)
    await file.write(lambda opened: opened.execute("SELECT 1"))
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN")
        holder.execute("SELECT * FROM object").fetchall()
        await file.write(lambda opened: opened.execute(PUT, (KEY, "etag", 0, bytes(MIB))))
        filler = fill(disk, but=0)
    before = tries()
    await until(lambda: tries() >= before + 3)  # two of them have ended, and one of those began after the last reader
    assert path.with_name("0a.db-wal").stat().st_size > MIB
    filler.unlink()
    await until(lambda: path.with_name("0a.db-wal").stat().st_size == 0)
    await file.close()


@pytest.mark.parametrize("content", [b"this is no file of SQLite's" * 400, b"SQLite format 3\0" + bytes(8000)])
async def test_a_broken_file_is_told_and_others_go_on(archive: Archive, folder: Path, content: bytes) -> None:
    os.makedirs(folder)
    (folder / "0a.db").write_bytes(content)
    with pytest.raises(ArchiveRefused, match=r"0a\.db is damaged, or is no archive; put its newest copy in its place"):
        await archive.get(KEY)
    assert await archive.put("v1/0b/default/1/0", b"x", only_if=None)
    (folder / "0a.db").unlink()
    assert await archive.put(KEY, b"x", only_if=None), "it is opened anew"


async def test_nothing_is_written_to_a_file_that_was_removed_while_it_was_in_use(
    archive: Archive, folder: Path
) -> None:
    await archive.put(KEY, b"x", only_if=None)
    away = folder.with_name("away")
    os.rename(folder, away)
    for attempt in (archive.put("v1/0a/default/1/0", b"y", only_if=None), archive.get(KEY), archive.delete(KEY)):
        with pytest.raises(ArchiveRefused, match="was removed while it was in use"):
            await attempt
    assert folder.name not in os.listdir(away.parent)
    os.rename(away, folder)
    assert await archive.put("v1/0a/default/1/0", b"y", only_if=None) is not None
    assert (await archive.list(""))[0].key == "v1/0a/default/00ff/0"


async def test_another_file_in_its_place_is_the_one_that_is_used(archive: Archive, folder: Path) -> None:
    await archive.put(KEY, b"before", only_if=None)
    saved = folder / "saved"
    with closing(sqlite3.connect(folder / "0a.db")) as file, closing(sqlite3.connect(saved)) as copy:
        file.backup(copy)
    await archive.put("v1/0a/default/1/0", b"later", only_if=None)
    for name in ("0a.db-wal", "0a.db-shm"):
        os.unlink(folder / name)
    os.rename(saved, folder / "0a.db")
    found = await archive.get(KEY)
    assert found is not None
    assert found.value == b"before"
    assert await archive.get("v1/0a/default/1/0") is None
    assert await archive.put("v1/0a/default/1/0", b"again", only_if=None) is not None
    async with opened(Place("sqlite", f"sqlite://{folder}")) as another:
        assert await another.get("v1/0a/default/1/0") is not None


async def test_a_file_of_a_newer_release_is_left_alone(archive: Archive, folder: Path) -> None:
    await archive.put(KEY, b"x", only_if=None)
    await archive.close()
    file = sqlite3.connect(folder / "0a.db")
    file.execute(f"PRAGMA user_version = {FORMAT + 1}")
    file.close()
    with pytest.raises(NewerFormat, match="upgrade it"):
        await archive.get(KEY)
