"""Reads the header of a sampled Harmony message, and makes the best of a malformed one.

A well-formed header is `assistant`, ` to=RECIPIENT`, `<|channel|>CHANNEL`, ` to=RECIPIENT`, ` <|constrain|>TYPE`, where
the recipient stands in one of the two places: openai-harmony renders it before the channel, gpt-oss samples it after.
Models do this, and it is corrected here: a doubled role, a recipient or a type glued to the channel or in its place, no
channel at all, marks or words too many, and no `<|message|>`, so that content stands in the header. A corrected header
is not `clean`. Nothing is dropped: `raw` is all of the header's text that didn't turn out to be content.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from service.harmony import tokens

CHANNELS = ("analysis", "commentary", "final")
ROLES = ("assistant", "user", "system", "developer", "tool")
JSON_TYPE = "<|constrain|>json"
"""The content type of a call whose arguments are JSON."""

_NEXT_WORDS = (" to=", " json")
"""The words that may follow a channel, or a role."""

_WORD = re.compile(r"\S+")
_RECIPIENT = re.compile(r"[A-Za-z0-9_.\-]+")
_UNMARKED_CHANNEL = re.compile(r"\s*(analysis|commentary|final)?(?:\s*to=([A-Za-z0-9_./:\-]+))?(?:\s+$)?")
_UNMARKED_TYPE = re.compile(r"\s*(json)?")
_UNMARKED_START = re.compile(r"(?:\s*assistant)*(?:\s*to=([A-Za-z0-9_./:\-]+)\s*$)?")
_CALLED = tuple(f"functions{separator}" for separator in "./:")
"""How the recipient of a call begins, also where a model writes it without `to=`, or misspells it."""


class Header(msgspec.Struct, frozen=True):
    """A header that was read. `content_type` keeps its `<|constrain|>`, as openai-harmony has it."""

    role: str
    channel: str | None
    recipient: str | None
    content_type: str | None
    name: str | None
    raw: str
    clean: bool


def read_header(ids: Sequence[int], *, role_given: bool, marked: bool) -> tuple[Header, str]:
    """Read the ids between START and MESSAGE.

    `role_given`: the prompt's `<|start|>assistant` opened the message. `marked`: a MESSAGE mark ended the header; if
    not, the rest behind the header is content. Returns the header and that content.
    """
    return _read(tuple(ids), role_given, marked)


def cut_short(ids: Sequence[int], content: str) -> bool:
    """Whether the `content` found in an unmarked header is but the first letters of its next word.

    A budget of tokens may end a generation anywhere; nobody should then be told "comment".
    """
    expected = (*CHANNELS, *_NEXT_WORDS) if tokens.CHANNEL in ids else _NEXT_WORDS
    return any(word.startswith(content) for word in expected)


@lru_cache(maxsize=1024)
def _read(ids: tuple[int, ...], role_given: bool, marked: bool) -> tuple[Header, str]:
    pieces, odd = _split(ids)
    return _read_marked(pieces, role_given, odd) if marked else _read_unmarked(pieces)


def _split(ids: tuple[int, ...]) -> tuple[list[tuple[int, str]], bool]:
    """The texts between marks, each with the mark before it (0: none), and whether any other mark stood there."""
    pieces: list[tuple[int, str]] = []
    mark, begin, odd = 0, 0, False
    for place, token in enumerate((*ids, tokens.MESSAGE)):
        if token < tokens.FIRST_SPECIAL:
            continue
        pieces.append((mark, tokens.decode(ids[begin:place])))
        begin = place + 1
        if token in (tokens.CHANNEL, tokens.CONSTRAIN):
            mark = token
        elif begin <= len(ids):
            odd = True
    return pieces, odd


class _Reading:
    """The parts of a header found so far."""

    def __init__(self) -> None:
        self.channel: str | None = None
        self.recipient: str | None = None
        self.content_type: str | None = None
        self.clean = True

    def word(self, word: str) -> None:
        """Take a word behind the role or the channel: a recipient, a channel without mark, or else a content type."""
        if word.startswith("to="):
            self.set_recipient(word[3:])
        elif word.startswith(_CALLED):
            self.clean = False
            self.set_recipient(word)
        elif self.channel is None and word in CHANNELS:
            self.clean = False
            self.channel = word
        elif self.content_type is None:
            self.content_type = word
        else:
            self.clean = False

    def set_recipient(self, value: str) -> None:
        name = value.partition("<|")[0]
        self.clean = self.clean and self.recipient is None and _RECIPIENT.fullmatch(value) is not None
        if name:
            self.recipient = name

    def set_channel(self, word: str) -> None:
        """Take the word behind `<|channel|>`: a channel, perhaps with more glued to it, or a recipient in its place."""
        self.clean = self.clean and word in CHANNELS and self.channel is None
        if word.startswith(("to=", *_CALLED)):
            self.channel = self.channel or "commentary"
            self.word(word)
            return
        known = next((name for name in CHANNELS if word.startswith(name)), None)
        self.channel = known or word
        if known and word != known:
            self.word(word[len(known) :])


def _read_marked(pieces: list[tuple[int, str]], role_given: bool, odd: bool) -> tuple[Header, str]:
    reading = _Reading()
    role, name, words = _role(_WORD.findall(pieces[0][1]), role_given, reading)
    for word in words:
        reading.word(word)
    for mark, text in pieces[1:]:
        words = _WORD.findall(text)
        if words and mark == tokens.CHANNEL:
            reading.set_channel(words.pop(0))
        elif words and reading.content_type is None:
            reading.content_type = f"<|constrain|>{words.pop(0)}"
        for word in words:
            reading.word(word)
    complete = reading.channel is not None and (reading.recipient is not None or reading.content_type is None)
    clean = reading.clean and complete and role == "assistant" and not odd
    return _header(reading, pieces, role, name, clean), ""


def _role(words: list[str], given: bool, reading: _Reading) -> tuple[str, str | None, list[str]]:
    """The role, a tool's name, and the words left. A role that is none is a tool's name where more words follow."""
    if words and not given and words[0] in ROLES:
        role, given = words[0], True
        words = words[1:]
        if role != "assistant":
            return role, None, words
    if words and words[0].startswith("assistant"):
        reading.clean = False
        rest = re.sub(r"^(?:assistant)+", "", words[0])
        return _role([rest, *words[1:]] if rest else words[1:], True, reading)
    if given or len(words) < 2 or words[0].startswith("to="):
        reading.clean = reading.clean and given
        return "assistant", None, words
    return "tool", words[0], words[1:]


def _read_unmarked(pieces: list[tuple[int, str]]) -> tuple[Header, str]:
    """Read as far as it looks like a header; from there on it is content."""
    reading = _Reading()
    content: list[str] = []
    used: list[str] = []
    for mark, text in pieces:
        match = _UNMARKED[mark].match(text) if not content else None
        if match is None:
            content.append(text)
            continue
        used.append(match.group())
        if mark == tokens.CHANNEL:
            reading.channel = match[1] or reading.channel
            reading.recipient = match[2] or reading.recipient
        elif mark == tokens.CONSTRAIN:
            reading.content_type = f"<|constrain|>{match[1]}" if match[1] else None
        else:
            reading.recipient = match[1] or reading.recipient
        if text[match.end() :]:
            content.append(text[match.end() :])
    return _header(reading, [(0, "".join(used))], "assistant", None, False), "".join(content)


_UNMARKED = {0: _UNMARKED_START, tokens.CHANNEL: _UNMARKED_CHANNEL, tokens.CONSTRAIN: _UNMARKED_TYPE}


def _header(reading: _Reading, pieces: list[tuple[int, str]], role: str, name: str | None, clean: bool) -> Header:
    raw = "".join(text for _, text in pieces)
    return Header(role, reading.channel, reading.recipient, reading.content_type, name, raw, clean)
