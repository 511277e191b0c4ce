"""A call as one JSON object with its name and its arguments: Hermes, Qwen.

    {"name": "get_weather", "arguments": {"city": "Paris"}}

The arguments go out as they are written, from their first brace to their last. Where they are a string with JSON
in it, it is decoded. Where they come before the name, they wait for it.

    expects    what comes                           then
    OBJECT     {                                    KEY
    KEY        the key of a member                  COLON
    COLON      :                                    VALUE
    VALUE      a string                             COMMA
               the beginning of arguments           ARGUMENTS
    ARGUMENTS  text, up to their end                COMMA
    COMMA      ,                                    KEY
               }                                    the call is whole

Anything else, and a member that isn't known, break the call.
"""

import re
from enum import Enum

from service.markup.call import MAX_NAME, Emit, Named, ObjectScan, State, decoded, legal_name

ARGUMENTS = ("arguments", "parameters")
IGNORED = ("id", "type")
"""Members without new information: a call gets an id of our own."""

MAX_FRAME = 4 * MAX_NAME
"""The most characters around a name and its arguments that wait in one piece, white space included."""

_OPENS = re.compile(r'\s*(?=[{"])')
_WORD = re.compile(r'\s*(?:([{}:,])|("(?:[^"\\]|\\.)*"))', re.DOTALL)
_UNFINISHED = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*\\?)?', re.DOTALL)


class Expects(Enum):
    """The next part of the object; see the table above."""

    OBJECT = "{"
    KEY = "key"
    COLON = ":"
    VALUE = "value"
    ARGUMENTS = "arguments"
    COMMA = ","


class JsonCall:
    """Reads such an object; `awaited` are the marks behind which it can't go on, unless a string quotes them."""

    def __init__(self, awaited: frozenset[str]) -> None:
        self.state = State.OPEN
        self.awaited = awaited
        self._expects = Expects.OBJECT
        self._held = ""
        """The beginning of a word around the arguments."""
        self._key = ""
        self._name: str | None = None
        self._named = False
        self._scan: ObjectScan | None = None
        """The scan for the arguments' end, once they have begun."""
        self._quoted = False
        """Whether the arguments are a string, which is decoded as a whole."""
        self._waiting: list[str] = []
        """Arguments that can't go out yet."""

    @property
    def signs(self) -> str | None:
        if self._expects is not Expects.ARGUMENTS or not self._named or self._quoted or self._scan is None:
            return None
        return self._scan.signs

    def text(self, text: str, emit: Emit) -> int:
        held, self._held = self._held, ""
        text = held + text
        at = 0
        while at < len(text) and self.state is State.OPEN and not self._held:
            at = self._arguments(text, at, emit) if self._expects is Expects.ARGUMENTS else self._frame(text, at, emit)
        if self.state is State.BROKEN and self._named and at < len(held):
            emit(held[at:])
        return max(at - len(held), 0)

    def mark(self, mark: str, emit: Emit) -> bool:
        if self._expects is Expects.ARGUMENTS and self._scan and self._scan.quoting:
            return False
        self.end(emit)
        if self.state is State.OPEN:
            self.state = State.BROKEN
        return True

    def end(self, emit: Emit) -> None:
        if self._expects is Expects.COMMA and self._name is not None and self._scan and not self._held.strip():
            self._finish(emit)
        elif self._named and self._held:
            emit(self._held)
            self.state = State.BROKEN

    def _arguments(self, text: str, at: int, emit: Emit) -> int:
        assert self._scan is not None
        end = self._scan.end(text, at)
        part = text[at:end]
        if self._quoted or self._name is None:
            self._waiting.append(part)
        else:
            self._argue(part, emit)
        if end is None:
            return len(text)
        self._expects = Expects.COMMA
        if self._quoted and not self._decode():
            self.state = State.BROKEN
        return end

    def _decode(self) -> bool:
        """Puts the decoded value of a string of arguments in its place; returns whether it could be decoded."""
        value = decoded("".join(self._waiting))
        self._waiting = [value[0]] if value else self._waiting
        return value is not None

    def _argue(self, part: str, emit: Emit) -> None:
        """Let arguments out, behind the name."""
        if not self._named and self._name is not None:
            self._named = True
            emit(Named(self._name))
        if part:
            emit(part)

    def _frame(self, text: str, at: int, emit: Emit) -> int:
        """Takes a word around the arguments; returns its end."""
        arguing = self._expects is Expects.VALUE and self._key in ARGUMENTS
        opens = _OPENS.match(text, at) if arguing else None
        if opens and opens.end() < len(text):
            self._expects = Expects.ARGUMENTS
            self._scan = ObjectScan()
            self._quoted = text[opens.end()] == '"'
            return opens.end()
        word = None if arguing else _WORD.match(text, at)
        if word and self._word(word[1] or word[2], emit):
            return word.end()
        unfinished = _UNFINISHED.match(text, at)
        if word is None and unfinished and unfinished.end() == len(text) <= at + MAX_FRAME:
            self._held = text[at:]
            return len(text)
        self.state = State.BROKEN
        return at

    def _word(self, word: str, emit: Emit) -> bool:
        """Take a whole word; whether it may stand there."""
        match self._expects, word:
            case Expects.OBJECT, "{":
                self._expects = Expects.KEY
            case Expects.COLON, ":":
                self._expects = Expects.VALUE
            case Expects.COMMA, ",":
                self._expects = Expects.KEY
            case Expects.COMMA, "}":
                self._finish(emit)
            case ((Expects.KEY | Expects.VALUE), word) if word[0] == '"':
                return self._string(word)
            case _:
                return False
        return True

    def _string(self, word: str) -> bool:
        """Take a key, or the value of one that is no arguments; whether it is known."""
        value = decoded(word)
        if value is None:
            return False
        text = str(value[0])
        if self._expects is Expects.KEY:
            self._key = text
            self._expects = Expects.COLON
            known = text in IGNORED or (text == "name" and self._name is None)
            return known or (text in ARGUMENTS and self._scan is None)
        self._expects = Expects.COMMA
        if self._key == "name":
            self._name = legal_name(text)
            return self._name is not None
        return True

    def _finish(self, emit: Emit) -> None:
        """The object ends: all held arguments go out."""
        if self._name is None:
            self.state = State.BROKEN
            return
        waiting = "".join(self._waiting) if self._scan else "{}"
        self._waiting.clear()
        self._argue(waiting, emit)
        self.state = State.WHOLE
