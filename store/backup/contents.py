"""The contents of a backup: its records in order, each checked against those before it, and their totals.

A caller first reads the whole file through this, and uses nothing of a file that raises. Missing and flipped bytes are
refused. A forged file with right checksums is refused too, where its names could reach other keys or its turns continue
turns that aren't there. Memory: the ids of one conversation.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import msgspec

from store.backup import blocks, records
from store.backup.blocks import BlockReader
from store.backup.records import End, Header, Record, Saved, Secret, Tree
from store.errors import BadBackup, NewerFormat, NotFound
from store.keys import MAX_SHARDS, Keyspace, checked_tenant, shard_of
from store.turn import TERMINAL

Wanted = Callable[[Tree], bool]
"""Whether a conversation is asked for."""

MOST = 1 << 63
"""No number in a file is as large."""


def all_of_it(tree: Tree) -> bool:
    """Every conversation."""
    return True


class ReadProgress(NamedTuple):
    """How far a reader is: the bytes read, of how many; and whether a conversation goes on in the next block."""

    at: int
    of: int
    goes_on: bool


class Entry(NamedTuple):
    """A turn, and the conversation that it is of."""

    tree: Tree
    turn: Saved


class Tally:
    """The totals of some conversations."""

    def __init__(self) -> None:
        self.trees = self.turns = self.deleted = 0
        self.tenants: set[str] = set()
        self.shards: Counter[tuple[int, str]] = Counter()
        """How many `responses`, `trees` and `bytes` are in each shard."""
        self.oldest, self.newest = MOST, 0
        """The first and the last use of all, in µs."""
        self._content = 0

    @property
    def content(self) -> str:
        """The digest of all (records.content)."""
        return f"{self._content % records.WHOLE:064x}"

    def add(self, found: Entry | Tree) -> None:
        """Count a conversation, or a turn of it."""
        if isinstance(found, Tree):
            self.trees += 1
            self.tenants.add(found.tenant)
            self.shards[_shard(found.root), "trees"] += 1
            self._used(found.used)
            return
        turn = found.turn
        self.turns += 1
        self.deleted += turn.deleted
        self.shards[_shard(turn.id), "responses"] += not turn.deleted
        self.shards[_shard(turn.id), "bytes"] += turn.held
        self._used(turn.used)
        self._content += records.content(found.tree, turn)

    def _used(self, at: int) -> None:
        self.oldest, self.newest = min(self.oldest, at), max(self.newest, at)


class Contents:
    """The records of a file, and the totals of those that were read so far."""

    def __init__(self, file: BinaryIO, wanted: Wanted = all_of_it) -> None:
        """Reads the header; counts what is `wanted`. Raises BadBackup, NewerFormat, OSError."""
        self.size = file.seek(0, 2)
        file.seek(0)
        self.reader = BlockReader(file)
        self._blocks = iter(self.reader)
        self.header = header_of(next(self._blocks).payload)
        self.place = ReadProgress(file.tell(), self.size, False)
        self.end: End | None = None
        self.secret: bytes | None = None
        self._wanted = wanted
        self._keyspace = Keyspace("backup", MAX_SHARDS)
        self._tree: Tree | None = None
        self._known: set[str] = set()
        self.tally = Tally()

    def blocks(self) -> Iterator[list[Entry | Tree]]:
        """Yields the wanted records of each block: a conversation, then its turns. Raises BadBackup, OSError."""
        for block in self._blocks:
            self.place = ReadProgress(block.end, self.size, block.kind == blocks.OPEN)
            if block.kind == blocks.END:
                self._finish(block.payload)
                continue  # the reader has yet to see that nothing follows
            found: list[Entry | Tree] = []
            for record in _separated(block.payload):
                entry = self._fold(record)
                if entry is not None and self._wanted(entry if isinstance(entry, Tree) else entry.tree):
                    found.append(entry)
                    self.tally.add(entry)
            if block.kind == blocks.TREES:
                self._tree = None
            yield found

    def _fold(self, record: Record) -> Entry | Tree | None:
        """The record in its conversation; None where it begins or adds nothing. Raises BadBackup."""
        try:
            if isinstance(record, Secret):
                if self._tree or self.tally.trees or not self.header.secret:
                    raise BadBackup("a secret stands where none can")
                self.secret = record.secret
                return None
            if isinstance(record, Tree):
                return self._begin(record)
            return self._take(record)
        except (ValueError, NotFound) as error:
            raise BadBackup(f"a name in it can't be: {error}") from error

    def _begin(self, tree: Tree) -> Tree | None:
        if self._tree is not None and (tree.tenant, tree.root) == (self._tree.tenant, self._tree.root):
            return None  # goes on
        if shard_of(self._keyspace.digits(tree.root)) >= self.header.shards or not 0 < tree.used < MOST:
            raise ValueError(f"{tree.root} in {self.header.shards} shards, used at {tree.used}")
        checked_tenant(tree.tenant)
        self._tree, self._known = tree, set()
        return tree

    def _take(self, turn: Saved) -> Entry:
        tree = self._tree
        if tree is None:
            raise BadBackup(f"{turn.id} is in no conversation")
        self._keyspace.digits(turn.id)
        above = turn.parent in self._known if turn.parent else turn.id == tree.root
        if not above or turn.id in self._known or turn.id[:7] != tree.root[:7]:
            raise BadBackup(f"{turn.id} doesn't stand behind what it continues")
        numbers = (
            turn.created,
            turn.used,
            turn.held,
            *((turn.erased.messages, turn.erased.bytes) if turn.erased else ()),
        )
        if turn.status not in TERMINAL or not all(0 <= number < MOST for number in numbers):
            raise BadBackup(f"{turn.id} is {turn.status}, or a number of it can't be")
        if (turn.response is None) != (turn.items is None) or not _words(turn.digest, turn.submission, turn.background):
            raise BadBackup(f"{turn.id} is not whole")
        self._known.add(turn.id)
        return Entry(tree, turn)

    def _finish(self, payload: bytes) -> None:
        try:
            end = records.decoded(End, payload)
        except msgspec.MsgspecError as error:
            raise BadBackup(f"its end can't be read: {error}") from error
        if end.file != self.reader.running.hexdigest():
            raise BadBackup("its digest is not that of its bytes")
        found = self.tally
        if self._wanted is all_of_it and (end.turns, end.trees, end.content) != (
            found.turns,
            found.trees,
            found.content,
        ):
            raise BadBackup(f"it says that it has {end.turns:,} turns, and it has {found.turns:,}, or others")
        self.end = end


def header_of(payload: bytes) -> Header:
    try:
        about = records.decoded(Header, payload)
    except msgspec.MsgspecError as error:
        raise BadBackup(f"its header can't be read: {error}") from error
    if about.format != records.FORMAT:
        raise BadBackup(f"it is a {about.format!r}, which this release doesn't know")
    if about.version > records.VERSION:
        raise NewerFormat(about.version)
    if not 1 <= about.shards <= MAX_SHARDS or not 0 < about.created < MOST or about.version < 1:
        raise BadBackup("its header has numbers that can't be")
    return about


def _separated(payload: bytes) -> list[Record]:
    try:
        return records.separated(payload)
    except msgspec.MsgspecError as error:
        raise BadBackup(f"a record in it can't be read: {error}") from error


def _shard(id: str) -> int:
    return int(id[5:7], 16)


def _words(*names: str | None) -> bool:
    """Whether all that goes to a script as a word is one."""
    return all(name is None or (name.isascii() and name.isalnum()) for name in names)
