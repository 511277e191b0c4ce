"""The pictures of messages: in a prompt a message has its own; in a turn a note behind it has them. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from store.turn import PICTURES, StoredMessage


class ShownPicture(msgspec.Struct, frozen=True, array_like=True):
    """A picture of a message, as its note has it: the digest in hex, the facts of its head, and the character of the
    message's text at which its `line` begins, the text for models that don't see.
    """

    digest: str
    format: str
    width: int
    height: int
    bytes: int
    detail: str
    at: int
    line: int


class Pictured(StoredMessage, frozen=True, array_like=True):
    """A message with its pictures, as prompts are made of; it is never stored."""

    pictures: tuple[ShownPicture, ...] = ()


_SHOWN = msgspec.json.Decoder(tuple[ShownPicture, ...])


def pictures_note(shown: Sequence[ShownPicture]) -> StoredMessage:
    """The note behind a message with these pictures."""
    return StoredMessage(PICTURES, b"", name=msgspec.json.encode(shown).decode())


def with_pictures(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """The messages of a prompt: those of turns without any notes, and with the pictures that are noted behind them."""
    made: list[StoredMessage] = []
    for message in messages:
        if message.tokens:
            made.append(message)
        elif message.role == PICTURES and made:
            made[-1] = Pictured(*_fields(made[-1]), pictures=_SHOWN.decode(message.name or "[]"))
    return made


def with_notes(messages: Iterable[StoredMessage]) -> tuple[StoredMessage, ...]:
    """The messages of a prompt as turns have them."""
    made: list[StoredMessage] = []
    for message in messages:
        made.append(without_pictures(message))
        if isinstance(message, Pictured):
            made.append(msgspec.structs.replace(pictures_note(message.pictures), item=message.item))
    return tuple(made)


def without_pictures(message: StoredMessage) -> StoredMessage:
    """The message as a model reads it that doesn't see."""
    return StoredMessage(*_fields(message)) if isinstance(message, Pictured) else message


def _fields(message: StoredMessage) -> list[Any]:
    return [getattr(message, name) for name in StoredMessage.__struct_fields__]
