"""Parts: the values under which an archive has the turns of a tree, as bytes and as values. Pure.

    v1/SHARD/TENANT/TREE/NUMBER    the key of a part: TREE is what the ids of a tree have in common (store/ids.py)

    bytes    "hA" | version | seal | packing | msgpack of a Part, in one zstd frame with a dictionary

The seal says how the rest is encrypted: 0 is not at all, and this release knows no other.

All parts but the last are full, so that a long tree is not written anew for each turn. The first part, 0, says how
many there are, which of all turns are gone, and where older trees are: their ids have no tree in common, so each of
them leads to a part of its own, which names the root.

Two trees of a tenant may share their digits by accident, and then their parts. So its id alone identifies a turn, and
the turns above it say to which tree it belongs.

The index of a tree says which turns there are, in which part, and what they continue, without their content. It is made
while the parts are read one after the other, and memory holds only the index of those that were read: so a tree may be
larger than memory. Nobody stores it.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

import msgspec
import zstandard

from store import codec
from store.backup.records import Saved
from store.codec import NEWEST
from store.errors import ArchiveDamaged, NewerFormat
from store.ids import tree_of
from store.keys import SHARD_DIGITS, checked_tenant

MAGIC = b"hA"
VERSION = 1
"""The version of a part that this release writes, and the newest that it reads. Each new member, value or kind
in it takes the next one: an archiver of an earlier release would write the part anew without it.
"""

PART_BYTES = 1 << 20
"""From how many bytes of payload on a part is full: some 300 turns, which are 256 KiB as they are written."""

MOST_PART_BYTES = 96 << 20
"""How many bytes a value may come to: one turn alone may have more than PART_BYTES. It is twice as many as a turn has
by the defaults of the service: its input (8 MiB, HARMONIUM_MAX_BODY_BYTES), that again as the response repeats it, and
its tokens (32 MiB, HARMONIUM_MAX_CHAIN_BYTES). A larger one stays in memory.
"""

MOST_HELD_BYTES = 2 * MOST_PART_BYTES
"""How many bytes of memory it may take while it is read, packed as it is and as values."""

COUNTED_FROM_BYTES = 2 * PART_BYTES
"""From how many bytes on that is counted: less take no more than that, whatever they are."""

UNKNOWN = ("Invalid enum value", "Invalid value")
"""How msgspec says that it doesn't know a status, or a kind of entry: a later release has written it."""

UNSEALED = 0
_HEAD = MAGIC + bytes([VERSION, UNSEALED])


class Part(msgspec.Struct, frozen=True, omit_defaults=True):
    """One value. Its `turns` are in the order in which they were archived first.

    The first part alone has the rest. `parts` is how many there are. `gone` has the ids of turns that were deleted, and
    whether their messages were erased: one that others continue is still there then, without its response.
    `gone_trees` has the roots of trees that were deleted as a whole.
    """

    turns: tuple[Saved, ...] = ()
    parts: int = 1
    gone: dict[str, bool] = {}
    gone_trees: tuple[str, ...] = ()


class KnownTurn(msgspec.Struct, frozen=True, gc=False):
    """A turn as a value has it. Its content is not decoded: it is raw, or empty."""

    id: str
    digest: str
    created: int
    used: int
    parent: str | None = None
    messages: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    items: msgspec.Raw = msgspec.Raw()
    erased: msgspec.Raw = msgspec.Raw()
    pictures: msgspec.Raw = msgspec.Raw()

    @property
    def payload(self) -> int:
        """About the bytes of its messages, its response, its items and its pictures."""
        return len(self.messages) + len(self.response) + len(self.items) + len(self.pictures)


class Shape(msgspec.Struct, frozen=True, gc=False):
    """A part of which nothing is decoded."""

    turns: msgspec.Raw = msgspec.Raw()
    gone: msgspec.Raw = msgspec.Raw()
    gone_trees: msgspec.Raw = msgspec.Raw()


class Outline(msgspec.Struct, frozen=True, gc=False):
    """A part without the content of its turns."""

    turns: tuple[KnownTurn, ...] = ()
    parts: int = 1
    gone: dict[str, bool] = {}
    gone_trees: tuple[str, ...] = ()


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Part)
_outlines = msgspec.msgpack.Decoder(Outline)
_shapes = msgspec.msgpack.Decoder(Shape)
_known = msgspec.msgpack.Decoder(KnownTurn)
T = TypeVar("T")


def folder_of(tenant: str, digits: str) -> str:
    """The prefix of the keys of the parts that may have the turn with these digits. Raises ValueError for a malformed
    tenant.
    """
    return f"v1/{digits[:SHARD_DIGITS]}/t.{checked_tenant(tenant)}/{tree_of(digits)}/"


def key_of(tenant: str, digits: str, number: int = 0) -> str:
    """The key of one of those parts. Raises ValueError for a malformed tenant."""
    return f"{folder_of(tenant, digits)}{number}"


def encode(part: Part) -> bytes:
    """The bytes of a part. Raises ValueError for one that is too large."""
    packed = _encoder.encode(part)
    _check(packed)
    return _HEAD + codec.squeeze(packed, NEWEST)


def decode(value: bytes) -> Part:
    """The part of a value. Raises NewerFormat for that of a later release, ArchiveDamaged where it is no part, or a
    picture in it is not what its digest says.
    """
    part = _read(value, _decoder)
    try:
        for turn in part.turns:
            turn.check()
    except ValueError as error:
        raise ArchiveDamaged(str(error)) from error
    return part


def outline_of(value: bytes) -> Outline:
    """The part of a value without the content of its turns, which takes a fifth of the time. Raises as `decode`; not
    for content that is damaged.
    """
    return _read(value, _outlines)


def bytes_to_read(value: bytes) -> int:
    """About how many bytes are held while a value is read: its own, and twice those that it unpacks to. Raises
    ArchiveDamaged where the value doesn't say how many that are.
    """
    try:
        return len(value) + 2 * max(len(value), codec.squeezed_size(value[len(_HEAD) :]))
    except zstandard.ZstdError as error:
        raise ArchiveDamaged(f"it can't be read: {error}") from error


def _read(value: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    if value[:2] != MAGIC or len(value) < len(_HEAD) + 1:
        raise ArchiveDamaged("it is no part of a tree")
    if value[2] > VERSION or value[3] != UNSEALED:  # only a later release seals
        raise NewerFormat(max(value[2], VERSION + 1))
    squeezed = value[len(_HEAD) :]
    try:
        if codec.squeezed_size(squeezed) > MOST_PART_BYTES:
            raise ArchiveDamaged(f"it would come to more than {MOST_PART_BYTES} bytes")
        packed = codec.unsqueeze(squeezed)
        _check(packed)
        return decoder.decode(packed)
    except (zstandard.ZstdError, msgspec.MsgspecError, ValueError) as error:  # ValueError: text that is none
        if str(error).startswith(UNKNOWN):
            raise NewerFormat(VERSION + 1) from error
        raise ArchiveDamaged(f"it can't be read: {error}") from error


NAME_BYTES, MESSAGE_BYTES, TURN_BYTES = 200, 220, 400
"""The bytes that CPython 3.11 needs for an id, a message and a turn, beyond their content (measured, 64 bit)."""


def _check(packed: bytes) -> None:
    """Raise ValueError for a part that takes too much memory, before anything of it is made; a forged one may come to
    many small values. Raises msgspec's errors.
    """
    if len(packed) <= COUNTED_FROM_BYTES:
        return
    shape, held = _shapes.decode(packed), 2 * len(packed)
    held += NAME_BYTES * (_count(shape.gone) + _count(shape.gone_trees)) + TURN_BYTES * _count(shape.turns)
    if held <= MOST_HELD_BYTES:
        turns = _outlines.decode(packed).turns
        held += MESSAGE_BYTES * sum(_count(turn.messages) + _count(turn.pictures) for turn in turns)
    if held > MOST_HELD_BYTES:
        raise ValueError(f"a part of a tree may take {MOST_HELD_BYTES:,} bytes of memory, and this one takes {held:,}")


_COUNTS = {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
"""How many bytes say how many elements there are, behind the first byte of a long array or map."""


def _count(packed: msgspec.Raw) -> int:
    """How many elements an array or a map has, as its first bytes say; 0 of what is neither."""
    head = bytes(memoryview(packed)[:5])
    if head and 0x80 <= head[0] < 0xA0:
        return head[0] & 15
    return int.from_bytes(head[1 : 1 + _COUNTS.get(head[0] if head else 0, 0)])


ENTRY_BYTES = 430
"""About what a turn takes in an index."""


NOWHERE = -1
"""The part of a turn that is in none yet."""


class TurnEntry(msgspec.Struct, gc=False):
    """A turn: the part that has it, the bytes of its messages, 0 where it has none, and of all its content; whether it
    is deleted, and whether something of it was erased; its digest, when it was made, and its last use as far as the
    archive knows.
    """

    number: int
    parent: str | None
    messages: int
    payload: int
    deleted: bool
    erased: bool
    digest: str
    created: int
    used: int

    @classmethod
    def of(cls, turn: KnownTurn, number: int = NOWHERE) -> "TurnEntry":
        """The entry of a turn that a part has."""
        messages, deleted, erased = len(turn.messages), not turn.response, bool(turn.erased)
        sizes = messages, turn.payload
        return cls(number, turn.parent, *sizes, deleted, erased, turn.digest, turn.created, turn.used)

    @classmethod
    def of_saved(cls, turn: Saved, number: int = NOWHERE) -> "TurnEntry":
        """The entry of a turn as a part would have it."""
        return cls.of(_known.decode(_encoder.encode(turn)), number)


class Index:
    """The index of the parts that were read, from the first on."""

    def __init__(self) -> None:
        self.entries: dict[str, TurnEntry] = {}
        self.filled: list[int] = []
        """How many bytes of content each part has."""
        self.doubled = set[int]()
        """The parts with turns that an earlier one has: they were written and never counted, and count for nothing."""
        self.parts = 1
        self.gone: dict[str, bool] = {}
        self.gone_trees: tuple[str, ...] = ()

    @property
    def held(self) -> int:
        """About how many bytes it takes."""
        return ENTRY_BYTES * (len(self.entries) + len(self.gone))

    @property
    def parents(self) -> dict[str, str | None]:
        """The parent of each turn."""
        return {id: entry.parent for id, entry in self.entries.items()}

    def add(self, outline: Outline) -> None:
        """Read the next part."""
        number = len(self.filled)
        if number == 0:
            self.parts, self.gone, self.gone_trees = outline.parts, outline.gone, outline.gone_trees
        filled = 0
        for turn in outline.turns:
            if turn.id in self.entries:
                self.doubled.add(number)
                continue
            self.entries[turn.id] = TurnEntry.of(turn, number)
            filled += turn.payload
        self.filled.append(filled)

    def path(self, id: str, *, remains: bool = False) -> list[str] | None:
        """The ids from a root to a turn that is there and not deleted, or with `remains` to a deleted one, too; None
        where there is no such turn, or one above it is missing.
        """
        entry = self.entries.get(id)
        if entry is None or (self.is_gone(id) and not remains):
            return None
        path = [id]
        while entry.parent is not None:
            path.append(entry.parent)
            entry = self.entries.get(entry.parent)
            if entry is None or len(path) > len(self.entries):
                return None
        return path[::-1]

    def is_gone(self, id: str) -> bool:
        """Whether a turn was deleted, as far as is known here."""
        entry = self.entries.get(id)
        return id in self.gone or (entry is not None and entry.deleted)

    def is_continued(self, id: str) -> bool:
        """Whether a turn was continued, or may have been: by one that was not read, or by one that was deleted, whose
        parent is not known.
        """
        unread = len(self.filled) < self.parts
        return unread or bool(self.gone) or any(entry.parent == id for entry in self.entries.values())

    def within(self, root: str) -> list[str]:
        """The ids of the turns of a tree that are there, in the order in which they came."""
        within = {root: True}
        for id, entry in self.entries.items():
            way, at = [id], entry.parent
            while at is not None and at not in within and at in self.entries and len(way) <= len(self.entries):
                way.append(at)
                at = self.entries[at].parent
            within.update(dict.fromkeys((each for each in way if each != root), within.get(at or "", False)))
        return [id for id in self.entries if within[id] and not self.is_gone(id)]

    def ends(self, root: str, here: Collection[str]) -> list[str]:
        """The ids of turns of a tree that are there and not among those `here`, and that no other such turn continues;
        those that came last first.
        """
        away = [id for id in self.within(root) if id not in here]
        continued = {self.entries[id].parent for id in away}
        return [id for id in reversed(away) if id not in continued]

    def numbers(self, ids: Iterable[str]) -> list[int]:
        """The parts that have some turns, in order."""
        return sorted({self.entries[id].number for id in ids})


def circular(parents: Mapping[str, str | None], broken: Collection[str] = ()) -> set[str]:
    """The ids of turns that continue themselves, and of `broken` ones, with all that continue these."""
    lost, sound = set(broken), set[str]()
    for id in parents:
        way, at = dict[str, None](), id
        while at in parents and at not in way and at not in sound and at not in lost:
            way[at] = None
            at = parents[at] or ""
        (lost if at in way or at in lost else sound).update(way)
    return lost
