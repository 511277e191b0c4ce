"""Nodes: the store's notes of a turn, and the turn as a backup has it. Does no I/O.

A node and the payloads of its turn are read one after the other, so the turn may have been deleted in between, or its
messages erased. Then the node doesn't fit the payloads, and both are to be read again. Never guess what is missing.
"""

from typing import NamedTuple

import msgspec
import zstandard

from store import codec
from store.backup.records import Erased, Saved
from store.keys import id_of
from store.turn import TERMINAL, Status


class Unreadable(Exception):
    """A turn that is damaged, or continues one that is; `harmonium fsck` says how."""


class Node(NamedTuple):
    """A turn as lua/describing.lua describes it."""

    digits: str
    parent: str | None
    root: str
    deleted: bool
    erased: Erased | None
    fleeting: bool
    status: str
    digest: str
    created: int
    used: int
    held: int
    messages_bytes: int
    response_bytes: int
    background: str | None
    submission: str | None

    @classmethod
    def of(cls, line: str) -> "Node":
        """The node of a line. Raises Unreadable for one of which something is missing."""
        try:
            return cls._of(line)
        except ValueError as error:
            raise Unreadable(line) from error

    @classmethod
    def _of(cls, line: str) -> "Node":
        digits, parent, root, deleted, erased, fleeting, status, digest, *rest = line.split(" ")
        created, touched, held, messages, response, chain_messages, chain_bytes, background, submission, *above = rest
        if "-" in (root, status, digest):
            raise ValueError(line)
        before = (int(above[0]), int(above[1])) if above else (0, 0)
        added = Erased(max(0, int(chain_messages) - before[0]), max(0, int(chain_bytes) - before[1]))
        return cls(
            digits,
            None if parent == "-" else parent,
            root,
            deleted != "-",
            None if erased == "-" else added,
            fleeting != "-",
            status,
            digest,
            int(created),
            int(touched),
            0 if held == "-" else int(held),
            int(messages),
            int(response),
            None if background == "-" else background,
            None if submission == "-" else submission,
        )

    @property
    def payload(self) -> int:
        """The bytes of its messages and its response."""
        return self.messages_bytes + self.response_bytes

    def fits(self, messages: bytes | None, response: bytes | None) -> bool:
        """Whether these are the payloads of the node."""
        return (
            messages is not None
            and len(messages) == self.messages_bytes
            and len(response or b"") == self.response_bytes
            and (response is None) == self.deleted
        )


async def saved(node: Node, messages: bytes | None, response: bytes | None) -> Saved:
    """The turn of a node. Raises Unreadable, and NewerFormat for what a later release wrote."""
    if not node.fits(messages, response) or messages is None:
        raise Unreadable(node.digits)
    try:
        if (status := Status(node.status)) not in TERMINAL:
            raise Unreadable(node.digits)
        said = codec.decode_messages(messages)
        answer, items = (None, None) if response is None else await codec.unpack_response(response)
    except (ValueError, msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise Unreadable(node.digits) from error
    return Saved(
        id=id_of(node.digits),
        status=status,
        created=node.created,
        used=node.used,
        held=node.held,
        digest=node.digest,
        messages=said,
        parent=None if node.parent is None else id_of(node.parent),
        response=answer,
        items=items,
        erased=node.erased,
        background=node.background,
        submission=node.submission,
    )


def needed(turns: list[Saved]) -> list[Saved]:
    """The turns of a conversation, in order, without those that are deleted and that nothing continues."""
    continued: set[str | None] = set()
    kept: list[Saved] = []
    for turn in reversed(turns):
        if not turn.deleted or turn.id in continued:
            kept.append(turn)
            continued.add(turn.parent)
    return kept[::-1]
