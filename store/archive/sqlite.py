"""An archive in SQLite: one file a shard in a folder that is its owner's alone, and one for all other keys. Or all keys
in one file that nobody else writes, as a backup has them.

A key `v1/SHARD/…` is in SHARD.db, so that writers of different shards don't wait for each other; any number of
processes of one machine use the folder. Never a folder on a network file system: SQLite needs locks and shared memory.

Each file has a thread that alone uses it: it carries out all waiting writes in one transaction.

A transaction is on the disk before any of its calls returns. So a sync of the disk is shared by up to BATCH writes, as
many as wait while the one before is under way.

Whatever was replaced or deleted is overwritten in the file, and stays in the log behind it for minutes at most: the
thread that opened or wrote a file writes its log into it and empties that, every LOG_SECONDS and when it ends. On a
full disk it tries that until there is room.
"""

import asyncio
import fcntl
import os
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from store.archive.port import ArchiveEntry, Bounds, Stored, end_of, new_etag
from store.errors import ArchiveRefused, ArchiveUnavailable, NewerFormat, is_disk_full

BATCH = 64
"""How many calls one transaction carries out at most."""

FORMAT = 1
PAGE_BYTES = 8192
CACHE_KIB = 1024
"""How much of each file a process keeps in memory; the rest is the system's cache of files."""

WAL_PAGES = 1000
"""How many pages are written behind a file before they are written into it (8 MB), for each of up to 257 files."""

FREED_PAGES = 256
"""How many free pages are given back to the disk behind a transaction (2 MB)."""

LOG_SECONDS = 120.0
"""How long after a write the log behind a file is emptied, which may have what that replaced: once in so long."""

LOG_BUSY_MS = 100
"""How long the thread waits for others that read a log. If they do for longer, it is emptied the next time."""

LOCK = "lock"
"""A file beside the others, locked while one of them is opened: two processes can't change its journal at once."""

_TABLE = f"""
    CREATE TABLE IF NOT EXISTS object (
        key TEXT NOT NULL UNIQUE, etag TEXT NOT NULL, changed INTEGER NOT NULL, value BLOB NOT NULL
    );
    PRAGMA user_version = {FORMAT};
"""
_MADE = f"""
    PRAGMA page_size = {PAGE_BYTES};
    PRAGMA auto_vacuum = incremental;
    PRAGMA journal_mode = wal;
"""
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
_WRITTEN = f"""
    PRAGMA page_size = {PAGE_BYTES};
    PRAGMA journal_mode = wal;
    PRAGMA synchronous = normal;
    PRAGMA secure_delete = on;
    {_TABLE}
"""
"""A file that one process writes, and that counts once it is whole: a sync now and then keeps it readable."""

_OPENED = f"""
    PRAGMA synchronous = full;
    PRAGMA secure_delete = on;
    PRAGMA wal_autocheckpoint = {WAL_PAGES};
    PRAGMA cache_size = -{CACHE_KIB};
"""

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]


@dataclass(frozen=True)
class _Call(Generic[T]):
    """A call: its work, its result where there is no file, and whether it writes."""

    work: Work[T]
    otherwise: T | None
    answer: asyncio.Future[T]
    writes: bool


class ShardFile:
    """A file, which is made where there is none. `busy_seconds` is how long it waits for other processes; `connect`
    replaces how it is opened. One that is `replaceable` is begun anew where it is removed while it is in use.
    """

    def __init__(
        self,
        path: Path,
        busy_seconds: float,
        connect: Callable[[Path, float], sqlite3.Connection] | None = None,
        *,
        replaceable: bool = False,
    ) -> None:
        self._path = path
        self._busy_seconds, self._connect = busy_seconds, connect or open_file
        self._replaceable = replaceable
        self._waiting = SimpleQueue[_Call[Any] | None]()
        self._opened: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        """The file that was opened last, as the system knows it."""
        self._log_until: float | None = None
        """When the log is to be emptied, by the seconds of `time.monotonic`; None where nothing may be in it."""
        self._thread = threading.Thread(target=self._serve, name=f"archive {path.name}", daemon=True)
        self._thread.start()

    async def read(self, work: Work[T], otherwise: T) -> T:
        """The result of `work`, or `otherwise` where the folder has no such file. Raises ArchiveUnavailable."""
        return await self._ask(work, otherwise, writes=False)

    async def write(self, work: Work[T]) -> T:
        """The result of `work`, once it is on the disk. Raises ArchiveUnavailable."""
        return await self._ask(work, None, writes=True)

    async def close(self) -> None:
        """Carry out the waiting calls, and end the thread."""
        self._waiting.put(None)
        await asyncio.to_thread(self._thread.join)

    async def _ask(self, work: Work[T], otherwise: T | None, *, writes: bool) -> T:
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.put(_Call(work, otherwise, answer, writes))
        return await answer

    # --- the thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        ends = False
        while not ends:
            batch = self._batch()
            # callers that gave up while they waited are passed over
            asked = [call for call in batch if call and not call.answer.cancelled()]
            for call in asked:
                if not call.writes:
                    self._carry_out([call])
            if writes := [call for call in asked if call.writes]:
                self._carry_out(writes)
            ends = None in batch
            if self._log_until is not None and (ends or time.monotonic() >= self._log_until):
                self._empty_log()
        self._forget()

    def _batch(self) -> list[_Call[Any] | None]:
        """The waiting calls, none when it is time to empty the log; None at the end means that no more will come."""
        batch: list[_Call[Any] | None] = []
        left = None if self._log_until is None else max(0.0, self._log_until - time.monotonic())
        try:
            batch.append(self._waiting.get(timeout=left))
            while len(batch) < BATCH and batch[-1] is not None:
                batch.append(self._waiting.get_nowait())
        except Empty:
            pass
        return batch

    def _carry_out(self, calls: list[_Call[Any]]) -> None:
        """Answer some calls: one that reads, or all that write, which happen together or not at all."""
        try:
            self._find_again()
            results = self._write(self._file(), calls) if calls[0].writes else [self._read(calls[0])]
        except Exception as error:  # whoever asked gets it; it must not end the thread
            if not (is_disk_full(error) and self._rolled_back()):
                self._forget()  # the next call opens the file anew
            results = [_translate(error, self._path, replaceable=self._replaceable)] * len(calls)
        calls[0].answer.get_loop().call_soon_threadsafe(_answer, calls, results)

    def _read(self, call: _Call[Any]) -> Any:
        if self._opened is None and self._path.parent.is_dir() and not self._path.exists():
            return call.otherwise
        return call.work(self._file())

    def _write(self, file: sqlite3.Connection, calls: list[_Call[Any]]) -> list[Any]:
        file.execute("BEGIN IMMEDIATE")
        results = [call.work(file) for call in calls]
        file.execute("COMMIT")
        self._log_fills()
        if file.execute("PRAGMA freelist_count").fetchone()[0]:
            file.executescript(f"PRAGMA incremental_vacuum({FREED_PAGES})")  # `execute` would free one page
        return results

    def _find_again(self) -> None:
        """Make sure that the file which was opened is still the one that others find. SQLite goes on with one that was
        removed, and what is written there is lost. Raises ArchiveRefused.
        """
        if self._identity is None:
            return
        try:
            found = _identity_of(self._path)
        except FileNotFoundError as error:
            if not self._replaceable:
                told = "was removed while it was in use; put it back, or restart the service to begin a new one"
                raise ArchiveRefused(f"{self._path} {told}") from error
            found = None
        if found != self._identity:
            self._forget()

    def _file(self) -> sqlite3.Connection:
        if self._opened is None:
            self._opened = self._connect(self._path, self._busy_seconds)
            self._identity = _identity_of(self._path)
            self._log_fills()
        return self._opened

    def _log_fills(self) -> None:
        if self._log_until is None:
            self._log_until = time.monotonic() + LOG_SECONDS

    def _empty_log(self) -> None:
        """Write the log into the file, and make it empty, unless others use it."""
        self._log_until = None
        if self._opened is None:
            return
        try:
            self._opened.execute(f"PRAGMA busy_timeout = {LOG_BUSY_MS}")
            try:
                busy, _, _ = self._opened.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._opened.execute(f"PRAGMA busy_timeout = {round(self._busy_seconds * 1000)}")
        except sqlite3.Error as error:
            busy = is_disk_full(error)
            if not busy:
                self._forget()  # whoever asks next opens the file anew, and is told
        if busy:
            self._log_fills()

    def _rolled_back(self) -> bool:
        """Undo what was not committed, and leave the file open; whether that worked. To open a file takes room on its
        disk, so that one that was closed as the disk is full could no longer be read.
        """
        if self._opened is None:
            return False
        try:
            if self._opened.in_transaction:
                self._opened.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def _forget(self) -> None:
        """Close the file, which undoes what was not committed."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


def _answer(calls: Sequence[_Call[Any]], results: Sequence[Any]) -> None:
    """Answer calls on their loop, of which one wakes it for all; an error that is a result is raised."""
    for call, result in zip(calls, results, strict=True):
        if call.answer.cancelled():
            continue
        if isinstance(result, Exception):
            call.answer.set_exception(result)
        else:
            call.answer.set_result(result)


def open_file(path: Path, busy_seconds: float, tables: str = _TABLE) -> sqlite3.Connection:
    """The file, made with these tables where it isn't there, for its owner alone. Raises sqlite3.Error, OSError and
    NewerFormat.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path.with_name(LOCK), "ab", opener=_own) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # SQLite would make it readable by others; what lies beside it has its mode. One that is there is never opened
        # beside SQLite: closing that again would unlock it for all of this process, and others would take its log away.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
        file = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=True)
        return _prepare(file, _OPENED, _MADE + tables)


def _alone(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """A file that no other process uses, to write it."""
    return _prepare(sqlite3.connect(path, timeout=busy_seconds, isolation_level=None), _WRITTEN, "")


def _whole(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """A file that nobody writes any more, to read it: nothing is made beside it. Somebody may have forged it, so that
    it has to have the one table and nothing else. Raises as `open_file`, and sqlite3.DatabaseError.
    """
    name = f"{path.absolute().as_uri()}?immutable=1"
    file = _prepare(sqlite3.connect(name, timeout=busy_seconds, isolation_level=None, uri=True), "", "")
    with closing(sqlite3.connect(":memory:")) as model:
        model.executescript(_TABLE)
        if file.execute(_SCHEMA).fetchall() != model.execute(_SCHEMA).fetchall():
            file.close()
            raise ArchiveRefused(f"{path} has other tables than an archive has")
    return file


def _prepare(file: sqlite3.Connection, each: str, first: str) -> sqlite3.Connection:
    """The connection, once it has carried out `each`, and `first` where the file is a new one."""
    try:
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise NewerFormat(version)
        file.executescript(each if version else each + first)
    except BaseException:
        file.close()
        raise
    return file


def _identity_of(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


_own = partial(os.open, mode=0o600)
"""Opens a file that is made for its owner alone."""


_ANEW = "remove it, with what lies beside it (-wal, -shm): the service makes it again"
"""The remedy for a file that can be made of others."""


def _translate(error: Exception, path: Path, *, replaceable: bool = False) -> Exception:
    """The error that the caller gets for one of the thread's."""
    if replaceable and isinstance(error, NewerFormat):
        return ArchiveRefused(f"{path} was written by a later release; {_ANEW}")
    if not isinstance(error, OSError | sqlite3.Error):
        return error
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_disk_full(error):
        told = ArchiveRefused(f"the disk of {path.parent} is full; make room on it")
    elif code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        remedy = _ANEW if replaceable else "put its newest copy in its place"
        told = ArchiveRefused(f"{path} is damaged, or is no archive; {remedy}")
    elif code == sqlite3.SQLITE_BUSY:
        told = ArchiveUnavailable(f"other processes use {path} all the time")
    else:
        told = ArchiveRefused(f"{path} can't be used ({error}); see whose it is, and to its disk")
    told.__cause__ = error
    return told


SHARDED = "v1/"
OTHER = "other"
"""The file of the keys that are in no shard."""

SUFFIX = ".db"

_IN_SHARD = re.compile(rf"{SHARDED}([0-9a-f]{{2}})/")

_CREATE = "INSERT INTO object (key, etag, changed, value) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_REPLACE = "UPDATE object SET etag = ?, changed = ?, value = ? WHERE key = ? AND etag = ?"
_LIST = (
    "SELECT key, length(value), changed, etag FROM object WHERE key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"
)


def _list(file: sqlite3.Connection, prefix: str, after: str, limit: int) -> list[ArchiveEntry]:
    return [ArchiveEntry(*row) for row in file.execute(_LIST, (after, prefix, end_of(prefix), limit))]


class SqliteBackend:
    """A folder of files. A file is opened when it is first asked for, by a thread of its own."""

    def __init__(self, folder: Path, bounds: Bounds) -> None:
        self._folder = folder
        self._bounds = bounds
        self._files: dict[str, ShardFile] = {}

    async def get(self, key: str) -> Stored | None:
        def work(file: sqlite3.Connection) -> Stored | None:
            row = file.execute("SELECT value, etag FROM object WHERE key = ?", (key,)).fetchone()
            return row and Stored(*row)

        return await self._file_of(key).read(work, None)

    async def put(self, key: str, value: bytes, only_if: str | None) -> str | None:
        etag, now = new_etag(), int(time.time())

        def work(file: sqlite3.Connection) -> str | None:
            if only_if is None:
                done = file.execute(_CREATE, (key, etag, now, value))
            else:
                done = file.execute(_REPLACE, (etag, now, value, key, only_if))
            return etag if done.rowcount else None

        return await self._file_of(key).write(work)

    async def delete(self, keys: Sequence[str]) -> None:
        def work(file: sqlite3.Connection, some: list[str]) -> None:
            file.executemany("DELETE FROM object WHERE key = ?", [(key,) for key in some])

        by_file: dict[ShardFile, list[str]] = {}
        for key in keys:
            by_file.setdefault(self._file_of(key), []).append(key)
        for file, some in by_file.items():
            await file.write(lambda opened, some=some: work(opened, some))

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        def work(file: sqlite3.Connection) -> list[ArchiveEntry]:
            return _list(file, prefix, after, limit)

        if not SHARDED.startswith(prefix):
            return await self._file_of(prefix).read(work, [])
        # shards are in order one behind the other, and the rest may be anywhere between them
        found = list(await self._file(OTHER).read(work, []))
        rest = len(found)
        for name in await asyncio.to_thread(self._shards):
            if f"{SHARDED}{name}0" > after and len(found) - rest < limit:
                found += await self._file(name).read(work, [])
        return sorted(found)[:limit]

    def warnings(self) -> Sequence[str]:
        return ()

    async def close(self) -> None:
        await asyncio.gather(*(file.close() for file in self._files.values()))
        self._files.clear()

    def _file_of(self, key: str) -> ShardFile:
        """The file that has a key, or all keys of a folder in a shard."""
        found = _IN_SHARD.match(key)
        return self._file(found[1] if found else OTHER)

    def _file(self, name: str) -> ShardFile:
        if name not in self._files:
            self._files[name] = ShardFile(self._folder / f"{name}{SUFFIX}", self._bounds.request_seconds)
        return self._files[name]

    def _shards(self) -> Sequence[str]:
        """The shards that have a file, in their order."""
        names = (path.stem for path in self._folder.glob(f"*{SUFFIX}"))
        return sorted(name for name in names if _IN_SHARD.match(f"{SHARDED}{name}/"))


class OneFileBackend(SqliteBackend):
    """All keys in one file, which nobody else writes. With `whole` it is only read, and may be on a disk that takes no
    writes.
    """

    def __init__(self, path: Path, bounds: Bounds, *, whole: bool) -> None:
        super().__init__(path.parent, bounds)
        self._only = self._files[path.name] = ShardFile(path, bounds.request_seconds, _whole if whole else _alone)

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[ArchiveEntry]:
        return await self._only.read(lambda file: _list(file, prefix, after, limit), [])

    async def settle(self) -> None:
        """Leave the file by itself, with nothing beside it, before it is closed."""

        def work(file: sqlite3.Connection) -> None:
            file.execute("PRAGMA journal_mode = delete")

        await self._only.read(work, None)

    def _file_of(self, key: str) -> ShardFile:
        return self._only
