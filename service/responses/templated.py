"""Prompts of models that don't speak Harmony: made by the template that the engine knows, from the kept messages; and
beginning, wherever they can, with the ids that the engine has read.

A template writes the whole conversation anew each time. Its text of an answer needn't be the sampled one: a text can be
cut into ids in several ways, and a call be written with other blanks. The engine's prefix cache knows the ids that it
read and sampled, so these stand where the template says the same. Templates that leave something out later, such as
reasoning, break the prefix there, as their models expect: their marks are then missing.

The ids that a model has sampled of a conversation are noted with each turn. A note has those of its own turn, and of
all other ids only their number and digests: the template writes them again, and erasing a turn erases all ids of it. A
conversation has tens of thousands of ids at each of its turns. They are in arrays, which are compared and copied
without a look at each id.

Each note has a salt, and its digests are keyed with those of all notes so far. Where one of them is erased, nobody can
try by a later digest what the turn said.
"""

import asyncio
import secrets
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from service.api.request import CreateRequest
from service.api.tools.callee import Callee
from service.engine.port import (
    Engine,
    EngineRefused,
    Generation,
    ModelCard,
    Renderer,
    Speech,
    Transcript,
    usual_options,
)
from service.harmony import tokens
from service.harmony.render import VERBOSITY
from service.harmony.typescript import Function
from service.markup.chat import Chat
from service.markup.families import FAMILIES
from service.markup.messages import form_of, tool_names, tools_told
from service.responses.output.machine import Machine
from service.responses.output.reading import (
    DIGEST_BYTES,
    NO_PROMPT,
    NOTHING,
    READ,
    Ids,
    KnownTurns,
    Sampled,
    ServedReading,
    Templated,
    TemplatedReading,
    digest_of,
)
from service.responses.prompt.build import Prompt
from service.responses.prompt.read import Read
from store.codec import THREAD_FROM_BYTES
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


def read_before(initial: Generation, reading: TemplatedReading) -> KnownTurns:
    """The turns sampled before the present stretch, where they are known here."""
    before, chat = reading.before, reading.chat
    prompt = None if before is None else _first(initial, chat) if before.first else before.prompt
    if before is None or prompt is None:
        return NOTHING
    heard = prompt.with_turn(array("I") if reading.dropped else before.sampled)
    return KnownTurns(heard.sampled_turns(chat.key), chat.key)


def note_of_read(initial: Generation, machine: Machine) -> list[StoredMessage]:
    """The note of a response's sampled tokens that its last prompt has or that stand behind it, where they are known
    here. Tokens that stand in no message are no part of it.
    """
    reading = machine.stretches
    if not isinstance(reading, TemplatedReading) or not reading.chat.noted or reading.unprompted:
        return []
    first = _first(initial, reading.chat)
    sampled = array("I") if reading.dropped else reading.tail
    return [note_of(initial.model, reading.chat, first, reading.prompt or first, sampled)]


def note_of(model: str, chat: Chat, first: Templated, last: Templated, sampled: Ids) -> StoredMessage:
    """The note of a response: of its first and its last prompt, which may be the same, and the tokens behind."""
    same = len(first.ids) if last is first else common(first.ids, last.ids)
    stay = [end for _, end in first.turns if end <= same]
    own = last.with_turn(sampled).sampled_turns(chat.key, behind=stay[-1] if stay else 0)
    turns = tuple(_Turn(turn.gap, turn.digest, tokens.pack(turn.ids)) for turn in own)
    note = _Note(model, len(stay), chat.salt, turns)
    return StoredMessage(READ, b"", name=msgspec.json.encode(note).decode())


def _first(initial: Generation, chat: Chat) -> Templated:
    """The prompt at the response's beginning."""
    prompt = initial.prompt
    return Templated(prompt if isinstance(prompt, array) else array("I", prompt), chat.turns)


OWN_BYTES = 16
"""How many random bytes `own` has, so that nobody else can write it."""

SALT_BYTES = 16
"""Of chance in the salt of a note."""

THREAD_FROM_TOKENS = 16_384
"""To compare so many takes some 3 ms, where the template writes each turn otherwise than it was sampled."""


async def prompt_of(
    engine: Engine,
    model: ModelCard,
    speech: Speech,
    read: Read,
    request: CreateRequest,
    prompt: Prompt,
    known: KnownTurns,
) -> tuple[Templated, Chat]:
    """A request's prompt, and how its response is read. `known` is what the model has sampled of the conversation.
    Where calls that were approved come first, the prompt is empty until they were made; where the server makes it, it
    always is. Raises EngineError.
    """
    declared = [(callee, shown) for callee, shown in read.tools.declared if read.rules.choice != "none"]
    names = tool_names([callee.recipient for callee, _ in declared])
    tools = _functions(declared, names)
    schemas = {names[callee.recipient]: shown.parameters or {} for callee, shown in declared}
    own = f" {secrets.token_hex(OWN_BYTES)} "  # between blanks it looks like no mark
    form = form_of(FAMILIES[speech.family].markup, speech.shown)
    told = None if form is None or not tools else tools_told(form, tools, own)
    salt = secrets.token_bytes(SALT_BYTES)
    encode = msgspec.json.encode
    chat = Chat(
        family=speech.family,
        marks=dict(speech.marks),
        ends=speech.ends,
        names=names,
        schemas=encode(schemas),
        opening=encode(_opening(request, read, speech, told)),
        history=b"[]",
        tools=encode([] if told else tools),
        options=encode(usual_options(read.effort) | request.template_options),
        shown=speech.shown,
        sees=speech.sees,
        own=own,
        salt=salt,
        key=key_behind(known.key, salt),
    )
    messages = [*prompt.shown, *prompt.ending]
    large = sum(len(each.tokens) for each in messages) > THREAD_FROM_BYTES
    history = await asyncio.to_thread(chat.encode, messages) if large else chat.encode(messages)
    chat = msgspec.structs.replace(chat, history=history)
    if chat.served:
        return NO_PROMPT, msgspec.structs.replace(chat, about=len(prompt.whole))
    if prompt.rules.answers is not None:
        return NO_PROMPT, chat
    made = await _make(engine, model.id, chat, chat.transcript(()), known)
    return made, msgspec.structs.replace(chat, thinking=chat.thinks(made.ids), turns=made.turns)


async def later_prompt(engine: Engine, initial: Generation, reading: TemplatedReading) -> Templated:
    """The prompt behind which a response goes on; an empty one where the server makes it. Raises EngineError."""
    if isinstance(reading, ServedReading):
        return NO_PROMPT
    return await _make(engine, initial.model, reading.chat, reading.transcript, read_before(initial, reading))


async def _make(engine: Engine, model: str, chat: Chat, transcript: Transcript, known: KnownTurns) -> Templated:
    """The prompt of a transcript, with what is `known` where it can be. Raises EngineError."""
    if not isinstance(engine, Renderer):
        raise EngineRefused(f"the engine of '{model}' knows no chat template")
    written = array("I", await engine.render(transcript, model))
    compared = (written, known if chat.shows_reasoning else NOTHING, chat.ends, chat.mark_ids)
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


def _functions(declared: Sequence[tuple[Callee, Function]], names: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """Tools as Chat Completions declare them, under these names."""
    return [
        {
            "type": "function",
            "function": {
                "name": names[callee.recipient],
                "description": shown.description,
                "parameters": shown.parameters or {"type": "object", "properties": {}},
            },
        }
        for callee, shown in declared
    ]


def _opening(request: CreateRequest, read: Read, speech: Speech, told: str | None) -> list[dict[str, str]]:
    """The opening before the conversation: one message of instructions, where there are any; `told`, the text about
    tools, comes last.
    """
    words = [] if request.instructions is None else [request.instructions]
    if request.verbosity != "medium":
        words.append(VERBOSITY[request.verbosity])
    if read.format.section:
        words.append(read.format.section)
    if told is not None:
        words.append(told)
    if not words and not speech.empty_system:
        return []
    return [{"role": "system", "content": "\n\n".join(words)}]
