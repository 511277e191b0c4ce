"""An archive in SQLite: one file a shard in a folder that is its owner's alone, and one for all other keys.

A key `v1/SHARD/…` is in SHARD.db, so that writers of different shards don't wait for each other; any number of
processes of one machine use the folder. Never a folder on a network file system: SQLite needs
locks and shared memory.
"""

import asyncio
import re
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from store.archive.port import Bounds, Entry, Stored, end_of, new_etag
from store.archive.shard_file import ShardFile

SHARDED = "v1/"
OTHER = "other"
"""The file of the keys that are in no shard."""

SUFFIX = ".db"

_IN_SHARD = re.compile(rf"{SHARDED}([0-9a-f]{{2}})/")

_CREATE = "INSERT INTO object (key, etag, changed, value) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO NOTHING"
_REPLACE = "UPDATE object SET etag = ?, changed = ?, value = ? WHERE key = ? AND etag = ?"
_LIST = "SELECT key, length(value), changed FROM object WHERE key > ? AND key >= ? AND key < ? ORDER BY key LIMIT ?"


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
            await file.write(lambda opened, some=some: work(opened, some), frees=True)

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[Entry]:
        def work(file: sqlite3.Connection) -> list[Entry]:
            return [Entry(*row) for row in file.execute(_LIST, (after, prefix, end_of(prefix), limit))]

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
