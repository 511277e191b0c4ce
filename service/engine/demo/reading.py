"""The reading of a Harmony prompt: the last message, the declared functions, the ids sampled already.

A prompt may hold 131,072 tokens. Where its messages begin is found at once; only those that matter are decoded, and of
long ones only the ends unless all is asked for, in pieces. Every function that could take long is a generator whose
yields are pauses. Nothing here may decide what to answer.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from service.harmony.tokens import ASSISTANT, MESSAGE, START, decode, encode, pack

PIECE_TOKENS = 2048
"""How much of a long conversation is decoded between two pauses: about 0.2 ms."""

OVERLAP_TOKENS = 128
"""How much the pieces of a message overlap."""

MESSAGES_PER_PAUSE = 2048
"""How many messages are found between two pauses."""

HEAD_TOKENS = 32_768
"""How much of the system and developer messages is read, in 3 to 6 ms; functions declared further on are not seen."""

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
"""A piece of no tokens: a generator yields it to let other tasks run."""

_USER, _SYSTEM, _DEVELOPER = (encode(role)[0] for role in ("user", "system", "developer"))


@dataclass(frozen=True)
class Output:
    """A tool's output: the tool's full name (`functions.get_weather`) and the text."""

    tool: str
    text: str


@dataclass(frozen=True)
class Reading:
    """A prompt as read for an answer.

    `asked` are the places of the user's messages in it, and `words` the text of the last one; `instruction` is the text
    of a developer message behind that, `outputs` the tool outputs that are not answered yet, oldest first, and
    `sampled` the ids of this answer that the prompt already holds, after its `<|start|>assistant`.
    """

    prompt: Sequence[int]
    asked: Sequence[range]
    system: str
    developer: str
    words: str
    outputs: tuple[Output, ...]
    sampled: Sequence[int]
    instruction: str

    def user_texts(self) -> Iterator[str]:
        """All of the user's words in pieces, newest first, overlapping by some; each is worth a pause."""
        for span in reversed(self.asked):
            body = _body(self.prompt, span)
            for high in range(span.stop, body, -PIECE_TOKENS):
                low = max(body, high - PIECE_TOKENS)
                yield decode(self.prompt[low : min(high + OVERLAP_TOKENS, span.stop)])


def read(prompt: Sequence[int]) -> Generator[tuple[int, ...], None, Reading]:
    """Read the parts that every answer needs: the prompt's head, and its last message."""
    spans = yield from _messages(prompt)
    roles = [prompt[span.start + 1] if len(span) > 1 else ASSISTANT for span in spans]
    texts = {_SYSTEM: "", _DEVELOPER: ""}
    head = 0
    while head < min(len(spans), HEAD_MESSAGES) and roles[head] in texts:
        texts[roles[head]] += decode(prompt[_body(prompt, spans[head]) : min(spans[head].stop, HEAD_TOKENS)])
        yield PAUSE
        head += 1
    turn = next((place for place in range(len(roles), 0, -1) if roles[place - 1] != ASSISTANT), 0)
    words, instruction, called = "", "", False
    outputs: list[Output] = []
    for span, role in zip(reversed(spans[head:turn]), reversed(roles[head:turn]), strict=True):
        if role == _USER:
            words = excerpt(prompt, span)
            yield PAUSE
            break
        if role == _DEVELOPER:
            instruction = instruction or excerpt(prompt, span)
        elif role == ASSISTANT:
            called = True
        elif not called and len(outputs) < OUTPUTS_READ:
            outputs.append(_output(prompt, span))
    asked = [span for span, role in zip(spans, roles, strict=True) if role == _USER]
    sampled = prompt[(spans[turn - 1].stop if turn else 0) + 2 :]
    return Reading(
        prompt, asked, texts[_SYSTEM], texts[_DEVELOPER], words, tuple(reversed(outputs)), sampled, instruction
    )


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


def places(token: int, ids: Sequence[int]) -> Iterator[int]:
    """Where `token` stands in `ids`, searched for as bytes: twenty times faster than id by id."""
    packed, wanted = pack(ids), pack([token])
    place = packed.find(wanted)
    while place >= 0:
        if place % ID_BYTES == 0:
            yield place // ID_BYTES
        place = packed.find(wanted, place + 1)


def _messages(prompt: Sequence[int]) -> Generator[tuple[int, ...], None, list[range]]:
    """The place of every message, from its START on."""
    starts: list[int] = []
    for place in places(START, prompt):
        if len(starts) % MESSAGES_PER_PAUSE == 0:
            yield PAUSE
        starts.append(place)
    return [range(*pair) for pair in pairwise([*starts, len(prompt)])]


def _body(prompt: Sequence[int], span: range) -> int:
    """Where the content of a message begins."""
    return next((place + 1 for place in span[:64] if prompt[place] == MESSAGE), span.stop)


def _output(prompt: Sequence[int], span: range) -> Output:
    header = decode(prompt[span.start + 1 : _body(prompt, span)])
    return Output(header.split(" to=")[0], excerpt(prompt, span))
