"""Records: what stands in a backup, as values. Pure.

    Header                     kind and origin of the file, once, at its beginning
    Secret                     the store's secret, where it was asked for
    Tree, Saved, Saved, …      a conversation: its root, then its turns, each after the one that it continues
    Tree, Saved, …             the next one
    End                        the totals, and the digest of the file

A record is a msgpack map with its `type`, so that it can be read without this file; blocks.py has the bytes around it.
A turn has its content as it was given, JSON and messages, not as the store packs it: so a file outlives the store's
formats. Readers pass over members that they don't know; whoever changes what a member means counts VERSION up.
"""

from hashlib import blake2b
from typing import TypeVar

import msgspec

from store.turn import Messages, Status

FORMAT = "harmonium-turns"
VERSION = 1
"""The version of the file that this release writes, and the newest that it reads."""

WHOLE = 1 << 256
"""Digests of content are sums below this, so that they are the same in any order."""


class Sums(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much there is, as the store's counters have it."""

    trees: int = 0
    turns: int = 0


class Header(msgspec.Struct, frozen=True, tag="header", omit_defaults=True):
    """The first record of a file. `created` is the server's time, in µs; `expected` has its counts at that time.

    A backup of one tenant or one tree has `tenant` or `tree` (the id of a response in it). `secret` says that the
    store's secret is in the file. `messages` is the newest format version of messages in it, and `layout` that of the
    store, where the store has one.
    """

    version: int
    release: str
    created: int
    shards: int
    messages: int
    expected: Sums
    format: str = FORMAT
    tenant: str | None = None
    tree: str | None = None
    secret: bool = False
    layout: int | None = None

    def same_as(self, other: "Header") -> bool:
        """Whether both ask for the same of the same store, so that one goes on with what the other began."""
        return (self.shards, self.tenant, self.tree, self.secret, self.version) == (
            *(other.shards, other.tenant, other.tree, other.secret, other.version),
        )


class Secret(msgspec.Struct, frozen=True, tag="secret"):
    """The store's secret. Never log it."""

    secret: bytes


class Tree(msgspec.Struct, frozen=True, tag="tree"):
    """A conversation: `root` is the id of its first turn, `used` the last use of any of them, in µs."""

    tenant: str
    root: str
    used: int


class Erased(msgspec.Struct, frozen=True):
    """The number and the bytes of the messages that a turn had added before they were erased."""

    messages: int
    bytes: int


class Saved(msgspec.Struct, frozen=True, tag="turn", omit_defaults=True):
    """A turn: all that the store has of it and can't work out.

    `created` and `used` are µs, `held` the bytes of memory that the server had for it. `digest` is the store's, of the
    turn as it was stored. `response` and `items` are JSON texts, and None of a turn that was deleted and that others
    continue. `background` is the mode of a response in the background, `submission` the digest of its submission.
    """

    id: str
    status: Status
    created: int
    used: int
    held: int
    digest: str
    messages: Messages = ()
    parent: str | None = None
    response: bytes | None = None
    items: bytes | None = None
    erased: Erased | None = None
    background: str | None = None
    submission: str | None = None

    @property
    def deleted(self) -> bool:
        """Whether its id is unknown, and only its messages stay."""
        return self.response is None

    @property
    def payload(self) -> int:
        """The bytes of its messages, its response and its items."""
        return len(self.response or b"") + len(self.items or b"") + sum(message.size for message in self.messages)


class End(msgspec.Struct, frozen=True, tag="end"):
    """The totals of the file.

    `content` is the digest of what is stored: two backups with the same one have the same conversations, in whatever
    order and whenever they were used. `broken` turns could not be read in the store, and `unsettled` conversations
    changed all the time while they were read. `file` is the digest of all bytes before this record's block.
    """

    finished: int
    trees: int
    turns: int
    deleted: int
    tenants: int
    content: str
    broken: int
    unsettled: int
    file: str


Record = Secret | Tree | Saved

_encoder = msgspec.msgpack.Encoder()
_records = msgspec.msgpack.Decoder(list[Record])
T = TypeVar("T", Header, End)


def encoded(record: Header | Record | End) -> bytes:
    """A record's bytes."""
    return _encoder.encode(record)


def joined(records: list[bytes]) -> bytes:
    """Encoded records as one list of them."""
    return _encoder.encode(list(map(msgspec.Raw, records)))


def separated(joined: bytes) -> list[Record]:
    """The records of such a list. Raises msgspec's errors."""
    return _records.decode(joined)


def decoded(kind: type[T], record: bytes) -> T:
    """A header or an end. Raises msgspec's errors."""
    return msgspec.msgpack.decode(record, type=kind)


def content(tree: Tree, turn: Saved) -> int:
    """The digest of a turn as readers see it, as a number below WHOLE: without its times of use, and its size."""
    said = msgspec.structs.replace(turn, used=0, held=0)
    return int.from_bytes(blake2b(_encoder.encode((tree.tenant, tree.root, said)), digest_size=32).digest())
