"""What a model that doesn't speak Harmony has read of a conversation: ids of its own, noted with each turn.

So the next prompt can begin with the very ids that the engine has read and sampled. A note says how many ids of those
before it stay, and which come behind them. Pure.
"""

import base64
from collections.abc import Iterable, Sequence

import msgspec

from service.engine.port import Generation
from service.harmony import tokens
from service.markup.prompts import common
from service.responses.output.machine import Machine
from store.turn import StoredMessage

READ = "read_ids"
"""The role of such a note."""


class _Note(msgspec.Struct, array_like=True, frozen=True):
    """`model` had `stay` of the ids before, and behind them `ids`, base64 of little-endian u32; the first `prompt` of
    all were a prompt's.
    """

    model: str
    stay: int
    prompt: int
    ids: str


_NOTE = msgspec.json.Decoder(_Note)


class Known(msgspec.Struct, frozen=True):
    """The ids that a model has read and sampled last, the first `prompt` of which were its prompt."""

    ids: list[int] = []
    prompt: int = 0


NOTHING = Known()


def known_of(notes: Iterable[StoredMessage], model: str) -> Known:
    """What a model has read, by the notes of a conversation, the oldest first; nothing where another one was asked
    last.
    """
    known = NOTHING
    for each in notes:
        note = _NOTE.decode(each.name or "")
        if note.model != model or note.stay > len(known.ids):
            known = NOTHING
        if note.model == model and note.stay <= len(known.ids):
            known = Known([*known.ids[: note.stay], *tokens.unpack(base64.b64decode(note.ids))], note.prompt)
    return known


def read_before(initial: Generation, machine: Machine) -> Known:
    """What was read and sampled before the present stretch, where that is known here."""
    before = machine.stretches.before
    if before is None:
        return NOTHING
    prompt, later, length, sampled = before
    if prompt is None and later:
        return NOTHING
    heard = () if machine.dropped else sampled
    return Known([*(initial.prompt if prompt is None else prompt), *heard], length)


def note_of_read(initial: Generation, machine: Machine) -> list[StoredMessage]:
    """The note of a response's last prompt and of what was sampled behind it, where it is known here. What was sampled
    and stands in no message is no part of it.
    """
    chat, stretches = machine.rules.chat, machine.stretches
    if chat is None or machine.unprompted:
        return []
    prompt: Sequence[int] = initial.prompt if stretches.prompt is None else stretches.prompt
    stay = min(chat.kept, common(initial.prompt, prompt))
    heard = () if machine.dropped else stretches.tail
    packed = base64.b64encode(tokens.pack([*prompt[stay:], *heard])).decode()
    note = _Note(initial.model, stay, len(prompt), packed)
    return [StoredMessage(READ, b"", name=msgspec.json.encode(note).decode())]
