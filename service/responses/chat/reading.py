"""What a model that doesn't speak Harmony has sampled of a conversation: ids of its own, noted with each turn.

So the next prompt can begin with the very ids that the engine has read and sampled. A note has what its own turn
sampled, and of all other ids only digests: whoever erases a turn erases all ids of it. Pure.

Each note has a salt, and its digests are keyed with those of all notes so far. Where one of them is erased, nobody can
try by a later digest what the turn said.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from service.engine.port import Generation
from service.harmony import tokens
from service.markup.chat import Chat
from service.markup.prompts import NOTHING, Ids, Known, Sampled, Templated, common, key_behind
from service.responses.output.machine import Machine
from store.turn import StoredMessage

READ = "read_ids"
"""The role of such a note."""

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Turn(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """As Sampled, with `ids` as little-endian u32."""

    gap: _Count
    digest: bytes
    ids: bytes


class _Note(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """`model` still had `stay` of the turns before, and behind them `turns`. What is bytes is base64."""

    model: str
    stay: _Count
    salt: bytes
    turns: tuple[_Turn, ...]


_NOTE = msgspec.json.Decoder(_Note)


def known_of(notes: Iterable[StoredMessage], model: str) -> Known:
    """What a model has sampled, by the notes of a conversation, the oldest first; nothing where another one was asked
    last, or behind a note that can't be read.
    """
    turns: list[Sampled] = []
    key = b""
    for each in notes:
        note = _read(each)
        if note is not None:
            key = key_behind(key, note.salt)
        if note is None or note.model != model or note.stay > len(turns):
            turns.clear()
            continue
        del turns[note.stay :]
        turns += [Sampled(turn.gap, turn.digest, tokens.unpack(turn.ids), key) for turn in note.turns]
    return Known(tuple(turns), key)


def sampled_in(note: StoredMessage) -> bytes:
    """The ids that a note has as its own turn's, in the model's own vocabulary, packed; none where it can't be read."""
    found = _read(note)
    return b"" if found is None else b"".join(turn.ids for turn in found.turns)


def _read(message: StoredMessage) -> _Note | None:
    """A note; None where it is of another form, or damaged."""
    try:
        note = _NOTE.decode(message.name or "")
    except msgspec.DecodeError:
        return None
    return None if any(len(turn.ids) % tokens.BYTES_A_TOKEN for turn in note.turns) else note


def read_before(initial: Generation, machine: Machine) -> Known:
    """What was sampled before the present stretch, where that is known here."""
    before, chat = machine.stretches.before, machine.rules.chat
    if before is None or chat is None:
        return NOTHING
    prompt = _first(initial, machine) if before.first else before.prompt
    if prompt is None:
        return NOTHING
    heard = prompt.heard(array("I") if machine.dropped else before.sampled)
    return Known(heard.sampled(chat.key), chat.key)


def note_of_read(initial: Generation, machine: Machine) -> list[StoredMessage]:
    """The note of what a response sampled that its last prompt has or that stands behind it, where that is known here.
    What was sampled and stands in no message is no part of it.
    """
    chat, stretches = machine.rules.chat, machine.stretches
    if chat is None or not chat.noted or machine.unprompted:
        return []
    first = _first(initial, machine)
    prompt = first if stretches.prompt is None else stretches.prompt
    return [note_of(initial.model, chat, first, prompt, array("I") if machine.dropped else stretches.tail)]


def note_of(model: str, chat: Chat, first: Templated, last: Templated, sampled: Ids) -> StoredMessage:
    """The note of a response: of its first and its last prompt, which may be the same, and what it sampled behind."""
    same = len(first.ids) if last is first else common(first.ids, last.ids)
    stay = [end for _, end in first.turns if end <= same]
    own = last.heard(sampled).sampled(chat.key, behind=stay[-1] if stay else 0)
    turns = tuple(_Turn(turn.gap, turn.digest, tokens.pack(turn.ids)) for turn in own)
    note = _Note(model, len(stay), chat.salt, turns)
    return StoredMessage(READ, b"", name=msgspec.json.encode(note).decode())


def _first(initial: Generation, machine: Machine) -> Templated:
    """The prompt at the response's beginning."""
    return Templated(_packed(initial.prompt), () if machine.rules.chat is None else machine.rules.chat.turns)


def _packed(ids: Sequence[int]) -> "array[int]":
    return ids if isinstance(ids, array) else array("I", ids)
