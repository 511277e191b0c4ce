"""Reading a Harmony prompt: who said what last, which functions are declared, what was sampled already.

A prompt may hold 131,072 tokens, so nothing here reads all of it unless asked: messages are looked for from
the end, the system and developer messages at the front, both in pieces. Every function that could take long
is a generator whose yields are pauses. Nothing here may decide what to answer.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from service.harmony.tokens import ASSISTANT, END, MESSAGE, START, byte_table, decode, encode, pack, unpack

PIECE_TOKENS = 2048
"""How much of a prompt is looked at between two pauses: about 0.2 ms."""

FIRST_PIECE_TOKENS = 256
"""The first look from the end, enough to find the last message of most prompts."""

HEAD_TOKENS = 32_768
"""How much of the system and developer messages is read; functions declared further on are not seen."""

HEAD_MESSAGES = 4
"""How many leading system and developer messages are read."""

MESSAGE_TOKENS = 2000
"""How many tokens at each end of a long last message are decoded."""

MESSAGE_CHARS = 4000
"""How many characters at each end of a long last message are considered."""

OUTPUTS_READ = 8
"""How many tool outputs in a row are read for one answer."""

ID_BYTES = 4
"""The width of a packed id."""

PAUSE: tuple[int, ...] = ()
"""What a generator yields to let others run: a piece of no tokens."""

_USER = encode("user")[0]
_SYSTEM = encode("system")[0]
_DEVELOPER = encode("developer")[0]


@dataclass(frozen=True)
class Output:
    """What a tool said: the tool's full name (`functions.get_weather`) and the text."""

    tool: str
    text: str


@dataclass(frozen=True)
class Reading:
    """What a prompt says to somebody who is about to answer it.

    `words` is the last user message's text, `instruction` the text of a developer message behind it, `outputs` the tool
    outputs that are not answered yet, oldest first, and `sampled` the ids of this answer that the prompt already
    holds, after its `<|start|>assistant`.
    """

    system: str
    developer: str
    words: str
    outputs: tuple[Output, ...]
    sampled: Sequence[int]
    instruction: str = ""


def read(prompt: Sequence[int]) -> Generator[tuple[int, ...], None, Reading]:
    """Read what every answer needs: both ends of the prompt."""
    system, developer, behind = yield from _head(prompt)
    outputs: list[Output] = []
    words, instruction, turn, called = "", "", None, False
    for span in _spans_from_the_end(prompt):
        if span is None:
            yield PAUSE
            continue
        role = prompt[span.start + 1] if len(span) > 1 else ASSISTANT
        if turn is None and role != ASSISTANT:
            turn = span.stop
        if role == _USER:
            words = excerpt(prompt, span)
            if len(words) > MESSAGE_CHARS:
                yield PAUSE
            break
        if span.start < behind:
            break
        if role == _DEVELOPER:
            instruction = instruction or excerpt(prompt, span)
            continue
        called = called or (role == ASSISTANT and turn is not None)
        if not called and role != ASSISTANT and len(outputs) < OUTPUTS_READ:
            outputs.append(_output(prompt, span))
    sampled = prompt[(turn or 0) + 2 :]
    return Reading(system, developer, words, tuple(reversed(outputs)), sampled, instruction)


def user_texts(prompt: Sequence[int]) -> Iterator[str | None]:
    """The user's words in pieces, newest first, overlapping by some words; None is a pause."""
    for span in _spans_from_the_end(prompt):
        if span is None:
            yield None
        elif len(span) > 1 and prompt[span.start + 1] == _USER:
            yield from _pieces_from_the_end(prompt, span)


def excerpt(prompt: Sequence[int], span: range) -> str:
    """The text of a message, without the middle where it is long."""
    body, end = _body(prompt, span), span.stop
    if end - body > 2 * MESSAGE_TOKENS:
        text = decode(prompt[body : body + MESSAGE_TOKENS]) + "\n" + decode(prompt[end - MESSAGE_TOKENS : end])
    else:
        text = decode(prompt[body:end])
    if len(text) > 2 * MESSAGE_CHARS:
        text = text[:MESSAGE_CHARS] + "\n" + text[-MESSAGE_CHARS:]
    return text


def _pieces_from_the_end(prompt: Sequence[int], span: range) -> Iterator[str | None]:
    overlap = PIECE_TOKENS // 16
    body, high = _body(prompt, span), span.stop
    while high > body:
        low = max(body, high - PIECE_TOKENS)
        yield decode(prompt[low : min(high + overlap, span.stop)])
        yield None
        high = low


def _spans_from_the_end(prompt: Sequence[int]) -> Iterator[range | None]:
    """The places of every message, from its START on, newest first; None is a pause."""
    high = end = len(prompt)
    size = FIRST_PIECE_TOKENS
    while high > 0:
        low = max(0, high - size)
        starts = [low + place for place in places(START, prompt[low:high])]
        for start in reversed(starts):
            yield range(start, end)
            end = start
        high, size = low, PIECE_TOKENS
        yield None


def places(token: int, ids: Sequence[int]) -> Iterator[int]:
    """Where `token` stands in `ids`, searched for as bytes: twenty times faster than id by id."""
    packed, wanted = pack(ids), pack([token])
    place = packed.find(wanted)
    while place >= 0:
        if place % ID_BYTES == 0:
            yield place // ID_BYTES
        place = packed.find(wanted, place + 1)


def _body(prompt: Sequence[int], span: range) -> int:
    """Where the content of a message begins."""
    return next((place + 1 for place in span[:64] if prompt[place] == MESSAGE), span.stop)


def _output(prompt: Sequence[int], span: range) -> Output:
    body = _body(prompt, span)
    header = decode(prompt[span.start + 1 : body])
    return Output(header.split(" to=")[0], excerpt(prompt, span))


def _head(prompt: Sequence[int]) -> Generator[tuple[int, ...], None, tuple[str, str, int]]:
    """The texts of the leading system and developer messages, and where they end."""
    texts = {_SYSTEM: "", _DEVELOPER: ""}
    start = 0
    for _ in range(HEAD_MESSAGES):
        if start + 1 >= len(prompt) or prompt[start + 1] not in texts:
            break
        end = yield from _end_of(prompt, start)
        texts[prompt[start + 1]] += yield from _text(prompt, _body(prompt, range(start, end)), end)
        start = end + 1
    return texts[_SYSTEM], texts[_DEVELOPER], start


def _end_of(prompt: Sequence[int], start: int) -> Generator[tuple[int, ...], None, int]:
    """Where the END of the message at `start` stands, or how far the head is read."""
    limit = min(len(prompt), HEAD_TOKENS)
    for low in range(start, limit, PIECE_TOKENS):
        place = next(places(END, prompt[low : min(low + PIECE_TOKENS, limit)]), None)
        if place is not None:
            return low + place
        yield PAUSE
    return limit


def _text(prompt: Sequence[int], start: int, end: int) -> Generator[tuple[int, ...], None, str]:
    """Decode a stretch of the head piece by piece; as heads hardly change, the pieces are kept."""
    decoded = b""
    for low in range(start, end, PIECE_TOKENS):
        if low > start:
            yield PAUSE
        decoded += _bytes(pack(prompt[low : min(low + PIECE_TOKENS, end)]))
    return decoded.decode("utf-8", "replace")


@lru_cache(maxsize=128)
def _bytes(packed: bytes) -> bytes:
    """The text of a piece of a head: at most 128 pieces of 8 KiB of ids are kept."""
    table = byte_table()
    return b"".join([table[token] for token in unpack(packed)])
