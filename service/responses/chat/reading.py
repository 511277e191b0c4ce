"""What a model that doesn't speak Harmony has read of a conversation: ids of its own, noted with each turn.

So the next prompt can begin with the very ids that the engine has read and sampled. A note says how many ids of those
before it stay, and which come behind them. Pure.
"""

import base64
from array import array
from collections.abc import Iterable, Sequence

import msgspec

from service.engine.port import Generation
from service.harmony import tokens
from service.markup.prompts import NOTHING, Known, common
from service.responses.output.machine import Machine
from store.turn import StoredMessage

READ = "read_ids"
"""The role of such a note."""


class _Note(msgspec.Struct, array_like=True, frozen=True):
    """`model` had `stay` of the ids before, and behind them `ids`, base64 of little-endian u32. `turns` are those that
    end among the latter, by their places among all.
    """

    model: str
    stay: int
    ids: str
    turns: tuple[tuple[int, int], ...]


_NOTE = msgspec.json.Decoder(_Note)


def known_of(notes: Iterable[StoredMessage], model: str) -> Known:
    """What a model has read, by the notes of a conversation, the oldest first; nothing where another one was asked
    last.
    """
    ids = array("I")
    turns: list[tuple[int, int]] = []
    for each in notes:
        note = _NOTE.decode(each.name or "")
        stay = note.stay if note.model == model and note.stay <= len(ids) else 0
        del ids[stay:]
        while turns and turns[-1][1] > stay:
            turns.pop()
        if note.model == model and note.stay == stay:
            ids += tokens.unpack(base64.b64decode(note.ids))
            turns += note.turns
    return Known(ids, tuple(turns))


def read_before(initial: Generation, machine: Machine) -> Known:
    """What was read and sampled before the present stretch, where that is known here."""
    before = machine.stretches.before
    if before is None:
        return NOTHING
    prompt = _first(initial, machine) if before.first else before.prompt
    return NOTHING if prompt is None else _heard(prompt, array("I") if machine.dropped else before.sampled)


def note_of_read(initial: Generation, machine: Machine) -> list[StoredMessage]:
    """The note of a response's last prompt and of what was sampled behind it, where it is known here. What was sampled
    and stands in no message is no part of it.
    """
    chat, stretches = machine.rules.chat, machine.stretches
    if chat is None or not chat.noted or machine.unprompted:
        return []
    prompt = _first(initial, machine) if stretches.prompt is None else stretches.prompt
    known = _heard(prompt, array("I") if machine.dropped else stretches.tail)
    stay = min(chat.kept, common(_packed(initial.prompt), known.ids))
    packed = base64.b64encode(known.ids[stay:].tobytes()).decode()
    note = _Note(initial.model, stay, packed, tuple(turn for turn in known.turns if turn[1] > stay))
    return [StoredMessage(READ, b"", name=msgspec.json.encode(note).decode())]


def _first(initial: Generation, machine: Machine) -> Known:
    """The prompt at the response's beginning."""
    return Known(_packed(initial.prompt), () if machine.rules.chat is None else machine.rules.chat.turns)


def _packed(ids: Sequence[int]) -> "array[int]":
    return ids if isinstance(ids, array) else array("I", ids)


def _heard(prompt: Known, sampled: "array[int]") -> Known:
    """A prompt, and a turn behind it."""
    begin = len(prompt.ids)
    turns = (*prompt.turns, (begin, begin + len(sampled))) if sampled else prompt.turns
    return Known(prompt.ids + sampled, turns)
