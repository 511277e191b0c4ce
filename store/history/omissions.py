"""Omissions: turns that remove messages of an earlier turn from a conversation, from there on.

A turn never changes, so an item that is deleted from a conversation stays where it is, for other continuations of its
turn. Below it a turn is added with a note that names the messages, and a reader of the chain leaves them out. Their
places in their turn never change: a message that is erased later leaves an empty one behind.
"""

from collections.abc import Sequence

import msgspec

from store.codec import StoredTurns
from store.keys import OMISSION_MARK, mark_of
from store.turn import Messages, Status, StoredMessage, Turn

ROLE = "omission"
"""The role of its note."""

ERASED = StoredMessage("erased", b"")
"""The message in the place of an erased one."""

_MARK = OMISSION_MARK.encode()


class _Omits(msgspec.Struct):
    turn: str
    messages: list[int]


_omits = msgspec.json.Decoder(_Omits)


def omitting(turn: str, messages: Messages, item: int) -> StoredMessage:
    """The note that leaves out the messages of a turn that show the item with this number."""
    places = [place for place, message in enumerate(messages) if message.item == item]
    return StoredMessage(ROLE, b"", name=msgspec.json.encode(_Omits(turn, places)).decode())


def omission(id: str, tip: str, note: StoredMessage, shown: bytes) -> Turn:
    """The turn that, added behind the tip of a conversation, leaves out the messages in a note. `id` is a `new_turn_id`
    with OMISSION_MARK; `shown` is JSON that the store never reads.
    """
    return Turn(id, tip, Status.COMPLETED, (note,), shown)


def without_text(messages: Messages, item: int) -> Messages:
    """A turn's messages, with ERASED in the places of those that show the item with this number."""
    return tuple(ERASED if message.item == item else message for message in messages)


def omissions_of(turns: Sequence[str]) -> list[str]:
    """The omissions among some turns, by their ids."""
    return [id for id in turns if OMISSION_MARK in id and mark_of(id[5:]) == OMISSION_MARK]


def may_omit(path: bytes) -> bool:
    """Whether the turns with these digits may have an omission among them. Quick, but a random id may say so, too."""
    return _MARK in path


def without_omitted(path: Sequence[str], turns: StoredTurns) -> StoredTurns:
    """The turns of a chain, whose digits are `path`, without the messages that its omissions name."""
    at_place = {digits: at for at, digits in enumerate(path)}
    omitted: dict[int, set[int]] = {}
    for at, digits in enumerate(path):
        if mark_of(digits) == OMISSION_MARK:
            for note in turns.alone(at):
                omits = _omits.decode(note.name or "")
                omitted.setdefault(at_place[omits.turn[5:]], set()).update(omits.messages)
    return turns.without(omitted)
