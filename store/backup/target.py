"""The target of a backup: a file that appears under its name once it is whole.

Until then it is called NAME.partial, and its writer has it locked. A later writer can go on after its last whole block
in which no conversation is open. Only its owner may read it, as it has conversations. Never overwrite a file that is
there.
"""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from store.backup import records
from store.backup.blocks import BLOCK_BYTES, END, HEADER, OPEN, TREES, BlockWriter
from store.backup.contents import Contents, Entry, Tally
from store.backup.records import End, Header, Record, Saved, Secret, Tree
from store.errors import BadBackup
from store.keys import ID_PREFIX, shard_of

SUFFIX = ".partial"
MODE = 0o600


class Target:
    """The file that a backup is written to."""

    def __init__(self, path: Path) -> None:
        """Opens and locks the partial file. Raises FileExistsError where the name is taken, BlockingIOError where
        another backup writes it, OSError.
        """
        if path.exists():
            raise FileExistsError(f"{path} is there already, and is not overwritten")
        self.path, self.partial = path, path.with_name(path.name + SUFFIX)
        opened = os.open(self.partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, MODE)
        self._file: BinaryIO = os.fdopen(opened, "r+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(self._file.fileno(), MODE)
        except BlockingIOError:
            self._file.close()
            raise BlockingIOError(f"another backup writes {self.partial}") from None
        self.tally = Tally()
        self.shard = 0
        """The shard of the last conversation in a resumed file."""
        self.seen: set[str] = set()
        """TENANT/DIGITS of the conversations of that shard in it."""
        self._records: list[bytes] = []
        self._bytes = 0
        self._open = False
        """Whether the last block ends amid a conversation."""
        self._tree: Tree | None = None
        self._writer: BlockWriter

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    @property
    def written(self) -> int:
        """The bytes of the file so far."""
        return self._file.tell()

    def begin(self, header: Header, secret: bytes | None) -> None:
        """Start anew; an earlier backup's partial file goes."""
        self._file.truncate(0)
        self._file.seek(0)
        self._writer = BlockWriter(self._file)
        self._writer.write(HEADER, records.encoded(header))
        if secret is not None:
            self._add(Secret(secret))
            self._flush(TREES)

    def go_on(self, header: Header) -> bool:
        """Go on with the partial file of a backup of the same scope; False where there is none.

        Raises BadBackup where its scope is another.
        """
        kept = self._last_whole()
        if not kept:
            return False
        self._file.truncate(kept)
        found = Contents(self._file)
        if not header.same_as(found.header):
            raise BadBackup(f"{self.partial} was begun for something else; remove it")
        try:
            for entries in found.blocks():
                for each in entries:
                    if isinstance(each, Tree):
                        self._note(each)
        except BadBackup:
            if found.place.at != kept:
                raise
        self.tally = found.tally
        self._file.seek(kept)
        self._writer = BlockWriter.after(found.reader, self._file)
        return True

    def tree(self, tree: Tree) -> None:
        """Begin a conversation: the turns that follow belong to it."""
        self._tree = tree
        self.tally.add(tree)
        self._add(tree)

    def turn(self, turn: Saved) -> None:
        """Add a turn of the conversation. Raises ValueError for one that is too large, OSError."""
        assert self._tree is not None
        self.tally.add(Entry(self._tree, turn))
        self._add(turn)
        if self._bytes >= 2 * BLOCK_BYTES:
            self._flush(OPEN)
            self._add(self._tree)  # each block can be read by itself

    def close_tree(self) -> None:
        """End the conversation: it is complete."""
        self._tree = None
        if self._open or self._bytes >= BLOCK_BYTES:
            self._flush(TREES)

    def finish(self, *, finished: int, broken: int, unsettled: int) -> End:
        """Write the end, and give the file its name. Raises FileExistsError, OSError."""
        if self._records:
            self._flush(TREES)
        found = self.tally
        end = End(
            finished=finished,
            trees=found.trees,
            turns=found.turns,
            deleted=found.deleted,
            tenants=len(found.tenants),
            content=found.content,
            broken=broken,
            unsettled=unsettled,
            file=self._writer.digest,
        )
        self._writer.write(END, records.encoded(end))
        self._file.flush()
        os.fsync(self._file.fileno())
        if self.path.exists():
            raise FileExistsError(f"{self.path} is there by now; the backup is {self.partial}")
        self.partial.rename(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return end

    def _last_whole(self) -> int:
        """Where the last block ends behind which no conversation is open; 0 where there is none."""
        kept = 0
        try:
            found = Contents(self._file)
            kept = found.place.at
            for _ in found.blocks():
                if not found.place.goes_on:
                    kept = found.place.at
        except BadBackup:
            return kept
        return kept

    def _note(self, tree: Tree) -> None:
        digits = tree.root.removeprefix(ID_PREFIX)
        if shard_of(digits) != self.shard:
            self.shard, self.seen = shard_of(digits), set()
        self.seen.add(f"{tree.tenant}/{digits}")

    def _add(self, record: Record) -> None:
        self._records.append(records.encoded(record))
        self._bytes += len(self._records[-1])

    def _flush(self, kind: int) -> None:
        self._open = kind == OPEN
        self._writer.write(kind, records.joined(self._records))
        self._records, self._bytes = [], 0
