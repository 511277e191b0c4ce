"""Exporting: a tenant's turns as lines of JSON, which need nothing of ours to be read. docs/archive.md has their form.

Deleted turns are left out, and a line is made of one turn at a time. Values that can't be read are counted.
"""

import struct
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import msgspec

from store.archive.archive import Archive
from store.backup.archiving.marks import Marks
from store.backup.records import Saved
from store.backup.upkeep.backup_file import turns_of
from store.backup.upkeep.walking import TreeParts, trees_of
from store.turn import StoredMessage

TOKEN_BYTES = 4


class Exported(msgspec.Struct):
    """The counts of an export: trees, turns, and values that could not be read."""

    trees: int = 0
    turns: int = 0
    unreadable: int = 0


class Export:
    """Exports what a tenant has in an archive; `done` says how far it is."""

    def __init__(self, archive: Archive, tenant: str) -> None:
        self._archive, self._tenant = archive, tenant
        self.done = Exported()

    async def lines(self, digits: str | None = None) -> AsyncGenerator[bytes]:
        """A line for each turn that is there, without its newline; of the tree with a turn of these digits, or of all.

        Raises ArchiveUnavailable, and ValueError for a malformed tenant.
        """
        erased = await Marks(self._archive).erased_until(self._tenant)
        async for tree in trees_of(self._archive, self._tenant, digits):
            self.done.trees += 1
            faults = list[Exception]()
            async for turn in turns_of(self._archive, tree, faults=faults):
                if not turn.deleted and turn.created > erased:
                    self.done.turns += 1
                    yield _line(tree, turn)
            self.done.unreadable += len(faults)


def _line(tree: TreeParts, turn: Saved) -> bytes:
    told = {
        "id": turn.id,
        "parent": turn.parent,
        "tree": tree.tree,
        "created": datetime.fromtimestamp(turn.created / 1e6, UTC).isoformat(),
        "status": turn.status,
        "response": _json(turn.response),
        "items": _json(turn.items),
        "messages": [_message(each) for each in turn.messages],
    }
    if turn.pictures:
        told["pictures"] = {picture.digest.hex(): picture.data for picture in turn.pictures}
    return msgspec.json.encode(told)


def _json(text: bytes | None) -> Any:
    """The value of a JSON text, which the store never reads; the text itself where it is not JSON."""
    try:
        return None if text is None else msgspec.json.decode(text)
    except msgspec.MsgspecError:
        return text.decode("utf-8", "replace") if text else None


def _message(message: StoredMessage) -> dict[str, Any]:
    """A message by its fields, without those that it hasn't; its tokens as numbers of the model's vocabulary."""
    names = ("role", "channel", "recipient", "name", "content_type", "call_id")
    told = {name: value for name in names if (value := getattr(message, name)) is not None}
    count = len(message.tokens) // TOKEN_BYTES
    return told | {"tokens": struct.unpack_from(f"<{count}I", message.tokens)}
