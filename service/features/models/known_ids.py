"""The ids that a model with a chat template has sampled of a conversation: noted with each turn, and put into later
prompts wherever the template says the same.

A template writes the whole conversation anew each time. Its text of an answer needn't be the sampled one: a text can be
cut into ids in several ways, and a call be written with other blanks. The engine's prefix cache knows the ids that it
read and sampled, so these stand where the template says the same. Templates that leave something out later, such as
reasoning, break the prefix there, as their models expect: their marks are then missing.

A note has the ids of its own turn, and of all others only their number and digests: the template writes them again,
and erasing a turn erases all ids of it. A conversation has tens of thousands of ids at each of its turns. They are in
arrays, which are compared and copied without a look at each id.

Each note has a salt, and its digests are keyed with those of all notes so far. Where one of them is erased, nobody can
try by a later digest what the turn said.
"""

import asyncio
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Annotated

import msgspec

from service.engine.port import Transcript
from service.features.models.markup.chat import Chat
from service.harmony import tokens
from service.responses.output.reading import (
    DIGEST_BYTES,
    READ,
    Ids,
    KnownTurns,
    RenderPrompt,
    Sampled,
    Templated,
    digest_of,
)
from store.turn import StoredMessage

_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Turn(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """As Sampled, with `ids` as little-endian u32."""

    gap: _Count
    digest: bytes
    ids: bytes


class _Note(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """`model` still had `stay` of the turns before, and behind them `turns`. Bytes are base64."""

    model: str
    stay: _Count
    salt: bytes
    turns: tuple[_Turn, ...]


_NOTE = msgspec.json.Decoder(_Note)


def known_of(notes: Iterable[StoredMessage], model: str) -> KnownTurns:
    """The turns that a model has sampled, by the notes of a conversation, the oldest first; none where another model
    was asked last, or behind a note that can't be read.
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
    return KnownTurns(tuple(turns), key)


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


def note_of(model: str, chat: Chat, first: Templated, last: Templated, sampled: Ids) -> StoredMessage:
    """The note of a response: of its first and its last prompt, which may be the same, and the tokens behind."""
    same = len(first.ids) if last is first else common(first.ids, last.ids)
    stay = [end for _, end in first.turns if end <= same]
    own = last.with_turn(sampled).sampled_turns(chat.key, behind=stay[-1] if stay else 0)
    turns = tuple(_Turn(turn.gap, turn.digest, tokens.pack(turn.ids)) for turn in own)
    note = _Note(model, len(stay), chat.salt, turns)
    return StoredMessage(READ, b"", name=msgspec.json.encode(note).decode())


THREAD_FROM_TOKENS = 16_384
"""To compare so many takes some 3 ms, where the template writes each turn otherwise than it was sampled."""


async def make_prompt(
    render: RenderPrompt, model: str, chat: Chat, transcript: Transcript, known: KnownTurns
) -> Templated:
    """The prompt of a transcript, with what is `known` where it can be. Raises EngineError."""
    written = array("I", await render(transcript, model))
    compared = (written, known, chat.ends, chat.mark_ids)
    if len(written) > THREAD_FROM_TOKENS:
        return await asyncio.to_thread(with_known, *compared)
    return with_known(*compared)


def key_behind(key: bytes, salt: bytes) -> bytes:
    """The key behind a note with this salt: without any of the salts before it, nobody can make it."""
    return blake2b(salt, digest_size=DIGEST_BYTES, key=key).digest()


def with_known(written: Ids, known: KnownTurns, ends: Collection[int], marks: Collection[int]) -> Templated:
    """A prompt as the template has `written` it, but with its turns as they were sampled where that says the same.

    A turn goes up to one of `ends`; `marks` are the other ids that are marks. One that was broken off stands as the
    template writes it. Behind the first turn that is written otherwise, all is as written.
    """
    made = array("I")
    turns: list[tuple[int, int]] = []
    at = kept = 0
    for turn in known.turns:
        start = at + turn.gap
        if digest_of(written[at:start], turn.key) != turn.digest:
            break
        kept += turn.gap
        behind = _end_of(turn.ids, written, start, ends, marks)
        if behind is None:
            kept += common(turn.ids, written[start:])
            break
        made += written[at:start]
        turns.append((len(made), len(made) + len(turn.ids)))
        made += turn.ids
        at, kept = behind, len(made)
    return Templated(made + written[at:], tuple(turns), kept)


def _end_of(sampled: Ids, written: Ids, start: int, ends: Collection[int], marks: Collection[int]) -> int | None:
    """The end of the turn that is written from `start` on, if it gives the sampled text; None if it doesn't."""
    if not sampled or sampled[-1] not in ends:
        return None
    behind = start + len(sampled)
    if written[start:behind] == sampled:
        return behind
    stop = next((each for each in range(start, len(written)) if written[each] in ends), None)
    if stop is None or _marks(sampled, marks) != _marks(written[start:stop], marks):
        return None
    return stop + 1


def _marks(ids: Ids, marks: Collection[int]) -> Counter[int]:
    return Counter([id for id in ids if id in marks])


def common(one: Ids, other: Ids) -> int:
    """How many ids two arrays begin with in common."""
    most = range(min(len(one), len(other)))  # slices compare far faster than items do
    return bisect_left(most, True, key=lambda place: one[: place + 1] != other[: place + 1])
