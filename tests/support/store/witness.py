"""Turns that prove themselves: each names its tenant, itself and its parent, so a chain shows what is wrong with it."""

from itertools import pairwise

import msgspec

from store.turn import Chain, Picture, Status, StoredMessage, Turn


def witness(
    tenant: str, id: str, parent: str | None = None, *, filler: bytes = b"", status: Status = Status.COMPLETED
) -> Turn:
    """A turn that says whose it is, which it is and what it comes after, and has `filler` to be as large as that."""
    text = _text(tenant, id, parent)
    return Turn(id, parent, status, (StoredMessage("user", text + filler),), text, b'["' + text + b'"]')


def pictured(witnessed: Turn) -> Turn:
    """The witness with a picture that has what it says, and one that all have."""
    return msgspec.structs.replace(witnessed, pictures=(Picture.of(witnessed.response), Picture.of(b"seen by all")))


def objections(tenant: str, chain: Chain, erased: frozenset[str] | None = None) -> list[str]:
    """What is wrong with a chain of witnesses: a hole, a turn of somebody else, a wrong order, a message too many.

    With `erased`, any turn may have lost its messages, and those in it must have.
    """
    wrong: list[str] = []
    for (parent, id), messages in zip(pairwise([None, *chain.ids]), chain.turns, strict=True):
        said = b"".join(message.tokens for message in messages)
        if erased is not None and not messages:
            continue
        if erased is not None and id in erased:
            wrong.append(f"{id} was erased and says {said[:200]!r}")
        elif len(messages) != 1 or not said.startswith(_text(tenant, str(id), parent)):
            wrong.append(f"{id} after {parent} of {tenant} says {said[:200]!r} in {len(messages)} messages")
    return wrong


def beginning(tenant: str, id: str) -> bytes:
    """What a turn's message and its response begin with, whatever its parent."""
    return f"{tenant}: {id} after ".encode()


def _text(tenant: str, id: str, parent: str | None) -> bytes:
    return beginning(tenant, id) + f"{parent}. ".encode()
