"""The file of a backup: an archive in one SQLite file, which says what it has and whether it is whole.

    v1/SHARD/t.TENANT/TREE/NUMBER    trees, v1/00/gone/ and v1/00/hold/ marks, v1/store/secret where it was asked for:
                                     all as in any archive
    files/v1/t.TENANT/FILE/…         files, as in any archive, of Redis too
    backup/header                    what the backup is of, and its totals, in JSON
    backup/digest                    a digest of all other keys and values

It is called NAME.partial until it is whole, and its writer has that locked. Only its owner may read it. A reader first
reads all of it, and uses nothing of a file that raises: missing and flipped bytes are refused, and so is a forged file
whose names could reach other keys. Memory holds one value of it at a time.
"""

import fcntl
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from store.archive.archive import Archive
from store.archive.port import Bounds
from store.archive.sqlite import OneFileBackend
from store.backup import records
from store.backup.archiving.marks import GONE, HOLD, mark_in
from store.backup.archiving.marks import key_of as mark_key
from store.backup.archiving.merging import as_gone
from store.backup.archiving.parts import Part, circular, decode, folder_of
from store.backup.heads import MOST
from store.backup.ownership import SECRET_KEY
from store.backup.records import Saved, are_json
from store.backup.upkeep.walking import ROOT, TreeParts, trees
from store.errors import ArchiveDamaged, ArchiveRefused, BadBackup, NewerFormat, NotFound
from store.files.files import ROOT as FILES
from store.files.files import check_value
from store.keys import MAX_SHARDS, SECRET_BYTES, Keyspace, checked_tenant, digits_of, shard_of
from store.turn import SAID_BYTES, TERMINAL

FORMAT = "harmonium-backup"
VERSION = 1
"""The version of the file that this release writes, and the newest that it reads."""

HEADER_KEY, DIGEST_KEY = "backup/header", "backup/digest"
SUFFIX = ".partial"
MODE = 0o600

PATIENT = Bounds(total_seconds=300.0, request_seconds=60.0)
"""A disk may stand still for a while."""

_KEYSPACE = Keyspace("backup", MAX_SHARDS)


class BackupHeader(msgspec.Struct, frozen=True):
    """The facts about a backup. Times are the server's, in µs. A backup of one tenant or one tree has `tenant` or
    `tree` (the id of a response in it). `secret` says that the store's secret is in the file; `layout` is the store's.

    The rest is there once the file is whole: `content` is the digest of what is stored, so that two backups with the
    same one have the same conversations, whenever they were used. `broken` turns and values could not be read, and
    `unsettled` conversations changed all the time while they were read. Of a file that was read, the totals are those
    of the part that was asked for, `digest` is that of its content, and `bytes` is its size.
    """

    release: str
    created: int
    shards: int
    tenant: str | None = None
    tree: str | None = None
    secret: bool = False
    layout: int | None = None
    finished: int = 0
    trees: int = 0
    turns: int = 0
    deleted: int = 0
    tenants: int = 0
    content: str = ""
    broken: int = 0
    unsettled: int = 0
    digest: str = ""
    bytes: int = 0
    format: str = FORMAT
    version: int = VERSION


_headers = msgspec.json.Decoder(BackupHeader)


class BackupProgress(NamedTuple):
    """How far it is: so many of the bytes of the file, of the turns in memory, or of the trees that go there, and what
    is done with them.
    """

    at: int
    of: int
    doing: str = "checking"


class TurnTotals:
    """The totals of some turns."""

    def __init__(self) -> None:
        self.trees = self.turns = self.deleted = 0
        self.tenants: set[str] = set()
        self.shards: set[int] = set()
        self._content = 0

    def header_with(self, header: BackupHeader) -> BackupHeader:
        """A header with these totals."""
        return msgspec.structs.replace(
            header,
            trees=self.trees,
            turns=self.turns,
            deleted=self.deleted,
            tenants=len(self.tenants),
            content=f"{self._content % records.WHOLE:064x}",
        )

    def add(self, tenant: str, turn: Saved) -> None:
        """Count a turn."""
        self.turns += 1
        self.deleted += turn.deleted
        self.tenants.add(tenant)
        self.trees += turn.parent is None
        self.shards.add(shard_of(digits_of(turn.id)))
        self._content += records.content(tenant, turn)


class Contents:
    """The content of a file, or of its trees of a `tenant`, or with the turn of some `digits`, once it was read: its
    `tally`, its `secret`, and with `named` its trees by their last use, each as (used, tenant, digits).
    """

    def __init__(
        self, file: Archive, size: int, tenant: str | None = None, digits: str | None = None, *, named: bool = False
    ) -> None:
        self._file, self._size, self._tenant, self._digits = file, size, tenant, digits
        self.tally = TurnTotals()
        self.secret: bytes | None = None
        self.marked = 0
        """The latest time of a mark."""
        self.trees: list[tuple[float, str, str]] = []
        self._named = named
        self._digest = sha256()

    async def check(self) -> AsyncGenerator[BackupProgress | BackupHeader]:
        """Read a whole file. Yields the progress, and last the result. Raises BadBackup, NewerFormat."""
        with refusing():
            head, digest = await self._file.get(HEADER_KEY), await self._file.get(DIGEST_KEY)
            if head is None:
                raise BadBackup("it is no backup of harmonium")
            header = header_in(head.value)
            if digest is None:
                raise BadBackup("its backup has not come to the end")
            async with aclosing(self.read()) as steps:
                async for step in steps:
                    yield step
            if self.digest(head.value).encode() != digest.value:
                raise BadBackup("its digest is not that of what it has")
        if self.marked > header.finished:
            raise BadBackup("it has a mark from after its end")
        if (self.secret is not None) != header.secret:
            raise BadBackup("it has a secret that it doesn't name, or names one that it lacks")
        yield self.header(header, digest.value.decode())

    async def read(self) -> AsyncGenerator[BackupProgress]:
        """Read all of it and check each value. Raises BadBackup, NewerFormat."""
        at = 0
        with refusing():
            async for found in trees(self._file, ""):
                if isinstance(found, TreeParts):
                    await self._tree(found)
                    at += found.size
                elif found.key not in (HEADER_KEY, DIGEST_KEY):
                    self._other(found.key, await self._value(found.key))
                yield BackupProgress(min(at, self._size), self._size)

    def header(self, header: BackupHeader, digest: str) -> BackupHeader:
        """The header with what was found. Raises BadBackup where it says something else."""
        found = self.tally.header_with(header)
        if self._tenant is self._digits is None and found != header:
            raise BadBackup(f"it says that it has {header.turns:,} turns, and it has {found.turns:,}, or others")
        if any(shard >= header.shards for shard in self.tally.shards):
            raise BadBackup(f"it has turns outside of its {header.shards} shards")
        return msgspec.structs.replace(found, digest=digest, bytes=self._size)

    def digest(self, header: bytes) -> str:
        """The digest of the file with a header."""
        whole = self._digest.copy()
        whole.update(sha256(header).digest())
        return whole.hexdigest()

    async def _tree(self, tree: TreeParts) -> None:
        sums, used, wanted = dict[str, bytes](), None, tree.is_asked(self._tenant, self._digits)
        async for turn in turns_of(self._file, tree, sums):
            if not is_whole(turn):
                raise ArchiveDamaged(f"{turn.id} has no JSON")
            used = max(used or 0, turn.used)
            if wanted:
                self.tally.add(tree.tenant, turn)
        if wanted and self._named and used is not None:
            self.trees.append((used, tree.tenant, tree.digits))
        for key, summed in sorted(sums.items()):
            self._sum(key, summed)

    def _other(self, key: str, value: bytes) -> None:
        """Raises ArchiveDamaged and ValueError for a key or a value that can't be there."""
        if key.startswith(FILES):
            check_value(key, value)
            self._sum(key, sha256(value).digest())
            return
        kind, _, name = key.removeprefix(ROOT).rpartition("/")
        tenant = name.removeprefix("t.")
        if key == SECRET_KEY and len(value) == SECRET_BYTES:
            self.secret = value
        elif kind in (GONE, HOLD) and key == mark_key(kind, tenant):
            self.marked = max(self.marked, mark_in(key, value).at)
        else:
            raise BadBackup(f"{key} can't be in it")
        self._sum(key, sha256(value).digest())

    async def _value(self, key: str) -> bytes:
        stored = await self._file.get(key)
        if stored is None:
            raise BadBackup(f"it lists {key} and doesn't have it")
        return stored.value

    def _sum(self, key: str, summed: bytes) -> None:
        self._digest.update(key.encode() + b"\0" + summed)


@contextmanager
def refusing() -> Generator[None]:
    """In the block, a value that can't be read is a BadBackup."""
    try:
        yield
    except ArchiveRefused as error:
        raise BadBackup("it is damaged, or made by something else") from error
    except ArchiveDamaged as error:
        raise BadBackup(error.fault) from error
    except (ValueError, TypeError) as error:  # a TypeError: a value that is no bytes
        raise BadBackup(str(error)) from error


async def turns_of(
    file: Archive, tree: TreeParts, sums: dict[str, bytes] | None = None, faults: list[Exception] | None = None
) -> AsyncGenerator[Saved]:
    """The turns of a tree, each once, deleted ones as what is left of them; `sums` gets the digests of all values.

    `faults` gets the reason for each value that can't be read, which is passed over. Without it, that is raised:
    ArchiveDamaged and NewerFormat.
    """
    first, parents = Part(parts=0), dict[str, str | None]()
    missing = {0, *tree.parts}
    for number in sorted(tree.parts):
        stored = await file.get(tree.parts[number].key)
        if stored is None:
            continue
        missing.discard(number)
        try:
            part = check_part(tree, decode(stored.value))
        except (ArchiveDamaged, NewerFormat) as error:
            if faults is None:
                raise
            faults.append(error)
            continue
        if number == 0:
            first = part
            missing |= set(range(1, min(part.parts, len(tree.parts) + 1)))  # with more than there are, one is missing
        if sums is not None:
            sums[tree.parts[number].key] = sha256(stored.value).digest()
        for turn in part.turns if number < first.parts else ():  # others were written and never counted
            if turn.id not in parents:
                parents[turn.id] = turn.parent
                yield as_gone(turn, first.gone[turn.id]) if turn.id in first.gone else turn
    if missing and faults is None:
        raise ArchiveDamaged(f"{tree.folder} lacks some of its parts")
    if (lost := circular(parents)) and faults is None:
        raise ArchiveDamaged(f"{min(lost)} continues itself, or a turn that does")


def is_whole(turn: Saved) -> bool:
    """Whether a turn has what is served of it, unless it was deleted."""
    return turn.response is turn.items is None or are_json(turn.response or b"", turn.items or b"")


def check_part(tree: TreeParts, part: Part) -> Part:
    """The part itself. Raises ArchiveDamaged for one of a tree in which something of it can't be."""
    try:
        checked_tenant(tree.tenant)
        for id in (*part.gone, *part.gone_trees):
            _check_id(tree, id)
        for turn in part.turns:
            _check_id(tree, turn.id)
            _check_id(tree, turn.parent or turn.id)
            erased = (turn.erased.messages, turn.erased.bytes) if turn.erased else ()
            if turn.status not in TERMINAL or not all(
                0 <= number < MOST for number in (turn.created, turn.used, turn.held, *erased)
            ):
                raise ArchiveDamaged(f"{turn.id} is {turn.status}, or a number of it can't be")
            if (
                (turn.response is None) != (turn.items is None)
                or not all(
                    word is None or (word.isascii() and word.isalnum())
                    for word in (turn.digest, turn.submission, turn.background)
                )
                or len(turn.said) not in (0, SAID_BYTES)
            ):
                raise ArchiveDamaged(f"{turn.id} is not whole")
    except (ValueError, NotFound) as error:
        raise ArchiveDamaged(f"a name in it can't be: {error}") from error
    return part


def _check_id(tree: TreeParts, id: str) -> None:
    if folder_of(tree.tenant, _KEYSPACE.digits(id)) != tree.folder:
        raise ArchiveDamaged(f"{id} is not of {tree.folder}")


@asynccontextmanager
async def reading(path: Path) -> AsyncGenerator[tuple[Archive, int]]:
    """A file to read, and its size. Raises OSError where it isn't there."""
    size = os.stat(path).st_size
    file = Archive(OneFileBackend(path, PATIENT, whole=True), PATIENT)
    try:
        yield file, size
    finally:
        await file.close()


def header_in(value: bytes) -> BackupHeader:
    """The header of a file. Raises BadBackup, NewerFormat."""
    try:
        header = _headers.decode(value)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadBackup(f"its header can't be read: {error}") from error
    if header.format != FORMAT:
        raise BadBackup(f"it is a {header.format!r}, which this release doesn't know")
    if header.version > VERSION:
        raise NewerFormat(header.version)
    if not 1 <= header.shards <= MAX_SHARDS or not 0 < header.created < MOST or not 0 <= header.finished < MOST:
        raise BadBackup("its header has numbers that can't be")
    return header


class BackupTarget:
    """The file that a backup is written to."""

    def __init__(self, path: Path) -> None:
        """Opens and locks the partial file. Raises FileExistsError where the name is taken, BlockingIOError where
        another backup writes it, OSError.
        """
        if path.exists():
            raise FileExistsError(f"{path} is there already, and is not overwritten")
        self.path, self.partial = path, path.with_name(path.name + SUFFIX)
        self._lock = os.open(self.partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(self._lock, MODE)
        except BlockingIOError:
            os.close(self._lock)
            raise BlockingIOError(f"another backup writes {self.partial}") from None
        self.header: BackupHeader

    @asynccontextmanager
    async def opening(self, header: BackupHeader, *, resume: bool) -> AsyncGenerator[Archive]:
        """The archive to write to: an earlier backup's, if it is to be gone on with, or an empty one. It is closed with
        the block, and so is this. Raises BadBackup where the earlier one has another scope, or can't be read.
        """
        try:
            self._open()
            begun = await self._read_begun() if resume else None
            if begun is None:
                await self._empty()
            elif any(getattr(header, name) != getattr(begun, name) for name in ("shards", "tenant", "tree", "secret")):
                raise BadBackup(f"{self.partial} was begun for something else; remove it")
            self.header = begun or header
            await put(self.archive, HEADER_KEY, msgspec.json.encode(self.header))
            yield self.archive
        finally:
            await self.archive.close()
            os.close(self._lock)

    def _open(self) -> None:
        self._backend = OneFileBackend(self.partial, PATIENT, whole=False)
        self.archive = Archive(self._backend, PATIENT)

    async def _read_begun(self) -> BackupHeader | None:
        """The header of an earlier backup's file; None where that can't be gone on with."""
        try:
            with refusing():
                stored = await self.archive.get(HEADER_KEY)
            return stored and header_in(stored.value)
        except BadBackup:
            return None

    async def _empty(self) -> None:
        """Have nothing in the file, whatever was there."""
        await self.archive.close()
        for beside in ("-wal", "-shm", "-journal"):
            self.partial.with_name(self.partial.name + beside).unlink(missing_ok=True)
        os.truncate(self._lock, 0)
        self._open()

    async def finish(
        self, *, finished: int, broken: int, unsettled: int
    ) -> AsyncGenerator[BackupProgress | BackupHeader]:
        """Read back what was written, note its totals, and give the file its name. Yields the progress, and last the
        result. Raises BadBackup, FileExistsError, OSError.
        """
        contents = Contents(self.archive, self.partial.stat().st_size)
        try:
            async with aclosing(contents.read()) as steps:
                async for step in steps:
                    yield step
        except BadBackup as error:
            raise BadBackup(f"{error.why}; remove {self.partial}") from error
        done = msgspec.structs.replace(self.header, finished=finished, broken=broken, unsettled=unsettled)
        header = contents.tally.header_with(done)
        head = msgspec.json.encode(header)
        digest = contents.digest(head)
        checked = contents.header(header, digest)
        await put(self.archive, HEADER_KEY, head)
        await put(self.archive, DIGEST_KEY, digest.encode())
        await self._backend.settle()
        await self.archive.close()
        os.fsync(self._lock)
        if self.path.exists():
            raise FileExistsError(f"{self.path} is there by now; the backup is {self.partial}")
        self.partial.rename(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        yield msgspec.structs.replace(checked, bytes=self.path.stat().st_size)


async def put(archive: Archive, key: str, value: bytes) -> None:
    """Have a value under a key that nobody else writes."""
    stored = await archive.get(key)
    if stored is None or stored.value != value:
        await archive.put(key, value, only_if=stored and stored.etag)
