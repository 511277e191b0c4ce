"""Files: what a tenant uploaded, in pieces of a MiB, with a record that makes it known once it is whole.

    files/v1/t.TENANT/FILE/NUMBER    a piece in the archive
    files/v1/t.TENANT/FILE/record    its record there, for a Redis that has lost its own

Records are in Redis, in the tenant's shard. Pieces are in the archive, or in Redis where there is none. An upload has
its room before each piece is written, so uploads at the same time don't pass a bound together; its entry has a lease,
so a sweep deletes what a dead process left.

A file is deleted in two steps: first nobody knows it, then its pieces go. Its name waits for that in Redis, so a
process that dies in between is followed by one that goes on. Never show a file before all of it is stored.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, cast

import msgspec

from store.archive.archive import Archive
from store.archive.port import MOST_DELETED, MOST_LISTED
from store.codec import decode_record
from store.errors import ArchiveDamaged, ArchiveUnavailable, NewerFormat, StoreError, StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.keys import Key, ShardKeys, checked_tenant
from store.redis import scripts

VERSION = 1
"""The version of a record that this release writes, and the newest that it reads; each new member takes the next."""

PREFIX = "file-"
PIECE_BYTES = 1 << 20
ROOT = "files/v1/"
RECORD = "record"
"""Where a record is among the pieces of its file."""

LEASE_SECONDS = 60.0
"""For how long after its last sign of life an upload isn't taken for dead."""

SWEPT = 100
"""How many files of a shard are deleted between two looks for more."""

FREE_SHARE = 0.1
"""The share of a Redis's memory that files leave free, so that turns are stored as long as there is room for them."""

RECOVERED = "files-recovered"
"""The key in the first shard by which the records in the archive were read back into this Redis: the newest version
that could be read.
"""

_DIGITS = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""Digits in the order of their codes: ids have the order of the times in them."""

_TIME_DIGITS, _RANDOM_BYTES = 9, 11
_ID = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{24}}", re.ASCII)
_KEY = re.compile(rf"{ROOT}t\.([A-Za-z0-9_.-]{{1,64}})/({_ID.pattern})/({RECORD}|0|[1-9][0-9]{{0,8}})", re.ASCII)
_MEMORY = re.compile(rb"used_memory:(\d+).*?maxmemory:(\d+)", re.DOTALL)

Bound = Literal["files", "bytes", "held", "memory"]


class FileRecord(msgspec.Struct, frozen=True):
    """The record of a file; times are seconds since 1970. `archived` is whether the archive has its pieces."""

    id: str = ""
    filename: str = ""
    purpose: str = ""
    bytes: int = 0
    created_at: int = 0
    expires_at: int | None = None
    archived: bool = False
    version: int = VERSION

    @property
    def pieces(self) -> int:
        return -(-self.bytes // PIECE_BYTES)


@dataclass(frozen=True, slots=True)
class FileLimits:
    """The most files of a tenant, and of bytes: of one file, of a tenant's, and of a shard's in Redis."""

    files: int = 10_000
    file_bytes: int = 512 << 20
    bytes: int = 1 << 30
    held_bytes: int = 1 << 30


class FilesFull(StoreError):
    """There is no room for a file: the tenant's `files` or `bytes`, those of all that Redis may have (`held`), or the
    `memory` of its server.
    """

    def __init__(self, bound: Bound) -> None:
        super().__init__(f"no room for a file ({bound})")
        self.bound: Bound = bound


class FileTooLarge(StoreError):
    """A file has more than the `most` bytes that one may have."""

    def __init__(self, most: int) -> None:
        super().__init__(f"a file may have {most} bytes")
        self.most = most


class FileGone(StoreError):
    """A file was deleted while it was read or written, or its server has lost a part of it."""

    def __init__(self, id: str) -> None:
        super().__init__(f"file {id!r} is gone")
        self.id = id


def _decode(record: bytes) -> FileRecord:
    """The record in some bytes. Raises NewerFormat."""
    return decode_record(record, FileRecord, VERSION)


class Files:
    """The files of all tenants. All raise StoreUnavailable and ArchiveUnavailable, NewerFormat for a record of a later
    release, and ValueError for a malformed tenant.
    """

    def __init__(
        self,
        history: ConversationHistoryStore,
        archive: Archive | None = None,
        limits: FileLimits | None = None,
        *,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.archive = archive
        self.limits = limits or FileLimits()
        self.server, self.confirmer = history.server, history.confirmer
        self.lease_ms = round(lease_seconds * 1000)
        self._keyspace = history.keyspace

    async def store(
        self,
        tenant: str,
        wanted: FileRecord,
        content: AsyncIterator[bytes],
        complete: Callable[[FileRecord], FileRecord] = lambda record: record,
    ) -> FileRecord:
        """Store a file that comes in chunks of any length, under the id that its record has or a new one, and return
        its record once it is known and as safe as turns. The record is made `complete` once all of the content came.

        A file that fails, or is cancelled, leaves nothing behind. Raises FilesFull, FileTooLarge, FileGone, and the
        errors of `content` and `complete`.
        """
        now_us, size, most = await self._now_us(tenant), 0, self.limits.file_bytes
        if not wanted.id:
            wanted = msgspec.structs.replace(wanted, id=new_id(now_us), created_at=now_us // 1_000_000)
        await self._reserve(tenant, wanted.id, 0, begins=True)
        alive = asyncio.create_task(self._stay_alive(tenant, wanted.id))
        try:
            async for piece in _pieces(content):
                if size + len(piece) > most:
                    raise FileTooLarge(most)
                size = await self.append(tenant, wanted.id, size, piece)
            record = complete(msgspec.structs.replace(wanted, bytes=size))
            return await self.finish(tenant, record)
        except BaseException:
            with suppress(StoreUnavailable, ArchiveUnavailable):  # then the next sweep does it
                await asyncio.shield(self._drop(tenant, wanted.id))
            raise
        finally:
            alive.cancel()

    async def append(
        self, tenant: str, id: str, size: int, content: bytes | bytearray, *, lease_ms: int | None = None
    ) -> int:
        """Put content behind the first `size` bytes of a file that isn't known yet, which begins with size 0, and
        return how many it has then. For `lease_ms` from now on nobody takes it for dead. Raises FilesFull, FileGone.
        """
        number, behind = divmod(size, PIECE_BYTES)
        size -= behind
        if behind:
            known = FileRecord(id, bytes=size + behind, archived=self.archive is not None)
            before = await self.piece(tenant, known, number) or b""
            if len(before) < behind:
                raise FileGone(id)
            content = before + content
        for start in range(0, len(content), PIECE_BYTES):
            piece = bytes(memoryview(content)[start : start + PIECE_BYTES])
            number, size = size // PIECE_BYTES, size + len(piece)
            if self.archive is None:
                await self._leave_memory(tenant)
                await self._reserve(tenant, id, size, number, piece, begins=not number, lease_ms=lease_ms)
            else:
                await self._reserve(tenant, id, size, begins=not number, lease_ms=lease_ms)
                await self._put(f"{folder_of(tenant, id)}{number}", piece)
        return size

    async def finish(self, tenant: str, record: FileRecord) -> FileRecord:
        """Make a file known, of which all is stored, and return its record. Raises FileGone."""
        record = msgspec.structs.replace(record, archived=self.archive is not None)
        if self.archive is not None:
            await self._put(f"{folder_of(tenant, record.id)}{RECORD}", msgspec.msgpack.encode(record))
        await self._make_known(tenant, record)
        return record

    async def find(self, tenant: str, id: str) -> FileRecord | None:
        """The record of a file; None for one that never was, was deleted, has expired, or is another tenant's."""
        if not _ID.fullmatch(id):
            return None
        shard = self._shard(tenant)
        found, (seconds, _) = await self.server.row(("HGET", records_of(shard, tenant), id), ("TIME",), at=shard.clock)
        record = None if found is None else _decode(found)
        return None if record is None or _has_expired(record, int(seconds)) else record

    async def of(self, tenant: str, faults: list[StoreError] | None = None) -> list[FileRecord]:
        """A tenant's files, the oldest first, but for those of a later release; `faults` gets an error for each."""
        shard, records = self._shard(tenant), list[FileRecord]()
        found, (seconds, _) = await self.server.row(("HVALS", records_of(shard, tenant)), ("TIME",), at=shard.clock)
        for each in found:
            try:
                records.append(_decode(each))
            except NewerFormat as error:
                if faults is not None:
                    faults.append(error)
        return sorted(
            (record for record in records if not _has_expired(record, int(seconds))), key=lambda record: record.id
        )

    async def read(self, tenant: str, record: FileRecord) -> AsyncGenerator[bytes]:
        """The content of a file in pieces of PIECE_BYTES, of which the last may be shorter. Raises FileGone."""
        for number in range(record.pieces):
            piece = await self.piece(tenant, record, number)
            if len(piece or b"") != min(PIECE_BYTES, record.bytes - number * PIECE_BYTES):
                raise FileGone(record.id)
            yield piece or b""

    async def piece(self, tenant: str, record: FileRecord, number: int) -> bytes | None:
        """A piece of a file; None where it isn't there. What an upload that died had put behind the file's end is no
        part of it.
        """
        if not record.archived:
            pieces = self._shard(tenant).key_named(f"pieces:{tenant}/{record.id}")
            found: bytes | None = await self.server.command("HGET", pieces, number)
        else:
            stored = None if self.archive is None else await self.archive.get(f"{folder_of(tenant, record.id)}{number}")
            found = stored and stored.value
        return found and found[: record.bytes - number * PIECE_BYTES]

    async def delete(self, tenant: str, id: str) -> bool:
        """Delete a file, and return whether it was there. Its pieces may go later, where the archive is away."""
        found = await self.find(tenant, id) is not None
        if found:
            with suppress(ArchiveUnavailable):  # the next sweep goes on
                await self._drop(tenant, id)
        return found

    async def erase(self, tenant: str) -> int:
        """Delete all files of a tenant, and what is being uploaded; how many these were."""
        found = await self.server.command("HKEYS", self._shard(tenant).key_named(f"file-room:{tenant}"))
        ids = dict.fromkeys(id.decode() for id in found if id != b"*")
        if self.archive is not None:  # Redis may have lost their records
            folder = f"{ROOT}t.{checked_tenant(tenant)}/"
            ids |= {key.split("/")[3]: None async for key in _keys(self.archive, folder)}
        for id in ids:
            await self._drop(tenant, id)
        return len(ids)

    async def all(
        self, tenant: str | None = None, faults: list[StoreError] | None = None
    ) -> AsyncGenerator[tuple[str, FileRecord]]:
        """The files that Redis knows, those of a tenant or all, with whose they are. `faults` is as for `of`."""
        for shard in self._keyspace.all_shards():
            prefix, cursor = shard.key_named("files:"), b"0"
            while True:
                cursor, keys = await self.server.command(
                    "SCAN", cursor, "MATCH", f"{prefix}{tenant or '*'}", "COUNT", 1_000, at=shard.clock
                )
                for key in keys:
                    whose = key.decode().removeprefix(prefix)
                    for record in await self.of(whose, faults):
                        yield whose, record
                if cursor == b"0":
                    break

    async def sweep(self) -> int:
        """Delete files that have expired, and what died amid an upload or a deletion; how many these were. Those of a
        later release stay.
        """
        swept = 0
        for shard in self._keyspace.all_shards():
            times, left = shard.key_named("files-until"), 0
            while True:
                seconds, micros = map(int, await self.server.command("TIME", at=shard.clock))
                now_ms = seconds * 1000 + micros // 1000
                due = await self.server.command("ZRANGE", times, "-inf", now_ms, "BYSCORE", "LIMIT", left, SWEPT)
                for member in due:
                    tenant, _, id = member.decode().partition("/")
                    try:
                        await self.find(tenant, id)
                    except NewerFormat:
                        left += 1
                    else:
                        swept += await self._drop(tenant, id, due=True)
                if len(due) < SWEPT:
                    break
        return swept

    async def recover(self) -> int:
        """Have a Redis that has lost its records, or never had them, know the files of the archive; how many. Done
        once, and again by a later release. Raises in the end the error of a record that can't be read.
        """
        first, recovered, faults = self._keyspace.all_shards()[0].key_named(RECOVERED), 0, list[StoreError]()
        if self.archive is None or int(await self.server.command("GET", first) or 0) >= VERSION:
            return 0
        async for tenant, record in archived_files(self.archive, faults=faults):
            recovered += await self.adopt(tenant, record)
        await self.server.command("SET", first, VERSION)
        for error in faults:
            raise error
        return recovered

    async def adopt(self, tenant: str, record: FileRecord) -> bool:
        """Know a file of which the archive has all; False where it is known, or being deleted."""
        shard = self._shard(tenant)
        if await self.server.command("HEXISTS", records_of(shard, tenant), record.id):
            return False
        with suppress(FileGone):
            await self._make_known(tenant, record, adopts=True)
            return True
        return False

    async def faults(self) -> AsyncGenerator[tuple[str, FileRecord, str]]:
        """Yields files that are not whole, with whose they are and a word: they lack a `piece`, or Redis lacks the
        `record` that the archive has. Files in an archive that isn't given are passed over, and those of a later
        release. Raises ArchiveDamaged in the end.
        """
        async for tenant, record in self.all():
            if record.archived and self.archive is None:
                continue
            if not await self._is_whole(tenant, record) and await self.find(tenant, record.id):
                yield tenant, record, "piece"
        if self.archive is not None:
            faults = list[StoreError]()
            async for tenant, record in archived_files(self.archive, faults=faults):
                room = self._shard(tenant).key_named(f"file-room:{tenant}")
                if not await self.server.command("HEXISTS", room, record.id):
                    yield tenant, record, "record"
            for error in faults:
                if not isinstance(error, NewerFormat):
                    raise error

    async def _is_whole(self, tenant: str, record: FileRecord) -> bool:
        """Whether all pieces of a file are there."""
        if not record.archived or self.archive is None:
            pieces = self._shard(tenant).key_named(f"pieces:{tenant}/{record.id}")
            return await self.server.command("HLEN", pieces) == record.pieces
        folder = folder_of(tenant, record.id)
        names = {key.removeprefix(folder) async for key in _keys(self.archive, folder)}
        return names >= {str(number) for number in range(record.pieces)}

    async def _drop(self, tenant: str, id: str, *, due: bool = False) -> bool:
        """Delete a file or an upload, with `due` only where its time has come; whether it went."""
        shard = self._shard(tenant)
        (word,) = await self.server.run(scripts.drop_file, shard, tenant=tenant, file=id, due=due)
        if word != b"ok":
            return False
        if self.archive is not None:
            await _clear(self.archive, folder_of(tenant, id))
        await self.server.command("ZREM", shard.key_named("files-until"), f"{tenant}/{id}")
        return True

    async def _reserve(
        self,
        tenant: str,
        id: str,
        total: int,
        number: int = 0,
        piece: bytes = b"",
        *,
        begins: bool = False,
        lease_ms: int | None = None,
    ) -> None:
        """Have room for so many bytes of a file, and Redis keep a piece of them. Raises FilesFull, FileGone."""
        (word,) = await self.server.run(
            scripts.keep_piece,
            self._shard(tenant),
            tenant=tenant,
            file=id,
            begins=begins,
            total=total,
            number=number,
            piece=piece,
            lease_ms=lease_ms or self.lease_ms,
            most=self.limits.files,
            most_bytes=self.limits.bytes,
            most_held=self.limits.held_bytes,
        )
        if word == b"lost":
            raise FileGone(id)
        if word != b"ok":
            raise FilesFull(cast(Bound, word.decode()))

    async def _put(self, key: str, value: bytes) -> None:
        """Put a value into the archive, in the place of what an upload that died has put there."""
        assert self.archive is not None
        known = await self.archive.get(key) if await self.archive.put(key, value, only_if=None) is None else None
        if known is not None and known.value != value:
            await self.archive.put(key, value, only_if=known.etag)

    async def _make_known(self, tenant: str, record: FileRecord, *, adopts: bool = False) -> None:
        """Have Redis know a file, as safely as turns. Raises FileGone."""
        shard = self._shard(tenant)
        (word,) = await self.server.run(
            scripts.keep_file,
            shard,
            tenant=tenant,
            file=record.id,
            record=msgspec.msgpack.encode(record),
            total=record.bytes,
            pieces=0 if record.archived else record.pieces,
            until_ms=(record.expires_at or 0) * 1000,
            adopts=adopts,
        )
        await self.confirmer.prove(shard)
        known = await self.server.command("HEXISTS", records_of(shard, tenant), record.id)
        if word != b"ok" or not known:  # a failover may have lost it before the proof
            raise FileGone(record.id)

    async def _stay_alive(self, tenant: str, id: str) -> None:
        """Renew the lease of an upload, until cancelled: its sender may be slow."""
        while True:
            await asyncio.sleep(self.lease_ms / 3000)
            with suppress(StoreError):  # whoever stores the next piece is told
                await self._reserve(tenant, id, 0)

    async def _leave_memory(self, tenant: str) -> None:
        """Raise FilesFull where the server has too little memory left."""
        found = _MEMORY.search(await self.server.command("INFO", "memory", at=self._shard(tenant).clock))
        used, most = (int(found[1]), int(found[2])) if found else (0, 0)
        if most and used + PIECE_BYTES > most * (1 - FREE_SHARE):
            raise FilesFull("memory")

    async def _now_us(self, tenant: str) -> int:
        async with self.server.operation() as operation:
            return await operation.now_us(self._shard(tenant).clock)

    def shard_number(self, tenant: str) -> int:
        """The number of the shard that has a tenant's files."""
        return self._keyspace.place_of(checked_tenant(tenant))

    def _shard(self, tenant: str) -> ShardKeys:
        return self._keyspace.all_shards()[self.shard_number(tenant)]


def new_id(now_us: int) -> str:
    """An id that nobody guesses, behind those of earlier files in the order of their codes."""
    time = "".join(_DIGITS[now_us >> 6 * place & 63] for place in reversed(range(_TIME_DIGITS)))
    return PREFIX + time + secrets.token_urlsafe(_RANDOM_BYTES)


def folder_of(tenant: str, id: str) -> str:
    """The prefix of a file's keys in an archive."""
    return f"{ROOT}t.{checked_tenant(tenant)}/{id}/"


def records_of(shard: ShardKeys, tenant: str) -> Key:
    """The key of a tenant's records in its shard."""
    return shard.key_named(f"files:{tenant}")


async def archived_files(
    archive: Archive, tenant: str | None = None, *, faults: list[StoreError] | None = None
) -> AsyncGenerator[tuple[str, FileRecord]]:
    """The files whose records an archive has, those of a tenant or all, with whose they are.

    `faults` gets the error of each record that can't be read, which is passed over. Without it, that is raised:
    ArchiveDamaged and NewerFormat.
    """
    folder = ROOT if tenant is None else f"{ROOT}t.{checked_tenant(tenant)}/"
    async for key in _keys(archive, folder):
        if key.endswith(f"/{RECORD}") and (stored := await archive.get(key)) is not None:
            try:
                match, record = check_value(key, stored.value)
            except (ArchiveDamaged, NewerFormat) as error:
                if faults is None:
                    raise
                faults.append(error)
                continue
            if record is not None:
                yield match, record


def check_value(key: str, value: bytes) -> tuple[str, FileRecord | None]:
    """The tenant of a value of an archive, and the record that it is, None for a piece. Raises ArchiveDamaged,
    and NewerFormat.
    """
    match = _KEY.fullmatch(key)
    if match is None or len(value) > PIECE_BYTES:
        raise ArchiveDamaged(f"{key[:200]} can't be of a file")
    if match[3] != RECORD:
        return match[1], None
    try:
        record = _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ArchiveDamaged(f"{key} can't be read: {error}") from error
    if record.id != match[2] or record.bytes < 0:
        raise ArchiveDamaged(f"{key} is the record of another file")
    return match[1], record


async def _clear(archive: Archive, folder: str) -> None:
    """Delete a file's keys, the record first: without it nobody takes the pieces for a file."""
    keys = [key async for key in _keys(archive, folder)]
    keys.sort(key=lambda key: not key.endswith(RECORD))
    for some in keys[:1], *(keys[at : at + MOST_DELETED] for at in range(1, len(keys), MOST_DELETED)):
        await archive.delete(*some)


async def _keys(archive: Archive, folder: str) -> AsyncGenerator[str]:
    after = ""
    while page := await archive.list(folder, after=after):
        for entry in page:
            yield entry.key
        if len(page) < MOST_LISTED:
            return
        after = page[-1].key


async def _pieces(content: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The same content in pieces of PIECE_BYTES, of which the last may be shorter."""
    waiting = bytearray()
    async for chunk in content:
        with memoryview(chunk) as view:
            for start in range(0, len(view), PIECE_BYTES):
                waiting += view[start : start + PIECE_BYTES]
                if len(waiting) >= PIECE_BYTES:
                    yield bytes(waiting[:PIECE_BYTES])
                    del waiting[:PIECE_BYTES]
    if waiting:
        yield bytes(waiting)


def _has_expired(record: FileRecord, now: int) -> bool:
    return record.expires_at is not None and record.expires_at <= now
