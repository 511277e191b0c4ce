"""A call whose name stands before its arguments, which are a JSON object: DeepSeek R1 to V3.1, Kimi K2.

    Kimi K2        <|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}
                   <|tool_call_end|>
    DeepSeek V3.1  <|tool_call_begin|>get_weather<|tool_sep|>{"city": "Paris"}<|tool_call_end|>
    DeepSeek V3    <|tool_call_begin|>function<|tool_sep|>get_weather
                   ```json
                   {"city": "Paris"}
                   ```<|tool_call_end|>

In DeepSeek's marks the bars are U+FF5C, and what joins words is U+2581. White space around the
arguments is dropped, and so is the fence.
"""

import re
from enum import Enum

from service.markup.call import MAX_NAME, Emit, Named, ObjectScan, State, legal_name

_BEFORE = re.compile(r"\s*(?:`{1,3}|```(?:j|js|jso|json)\s*)?")
_BEHIND = re.compile(r"\s*`{0,3}\s*")
_FENCES = ("", "```", "```json")
MAX_FENCE = 64
"""The most characters around arguments that are no part of them."""


FUNCTION = "function"
"""The only type of tool that models are told of."""


class Stands(Enum):
    """Where in the call it stands."""

    TYPE = "type"
    NAME = "name"
    BEFORE = "before"
    ARGUMENTS = "arguments"
    BEHIND = "behind"


class NamedCall:
    """Reads such a call up to one of `last`, its closing marks; `separator` stands between the name and the arguments.

    With `typed`, the text before the separator is the type of the tool, and the name is the line behind it. `name`
    finds the name in the text that is written in its place.
    """

    def __init__(self, separator: str, last: frozenset[str], *, typed: bool, name: re.Pattern[str]) -> None:
        self.state = State.OPEN
        self._last = last
        self._typed = typed
        self._pattern = name
        self._stands = Stands.TYPE if typed else Stands.NAME
        self.awaited = last | {separator}
        self._held = ""
        self._scan = ObjectScan()

    @property
    def signs(self) -> str | None:
        return self._scan.signs if self._stands is Stands.ARGUMENTS else None

    def text(self, text: str, emit: Emit) -> int:
        at = 0
        while at < len(text) and self.state is State.OPEN:
            if self._stands is Stands.ARGUMENTS:
                end = self._scan.end(text, at)
                emit(text[at:end])
                at = len(text) if end is None else end
                self._stands = Stands.ARGUMENTS if end is None else Stands.BEHIND
            else:
                at += self._around(text[at:], emit)
        return at

    def mark(self, mark: str, emit: Emit) -> bool:
        if self._stands in (Stands.TYPE, Stands.NAME):
            if mark in self._last or mark not in self.awaited or (self._typed and self._held.strip() != FUNCTION):
                self.state = State.BROKEN
            elif self._typed:
                self._stands, self._held, self.awaited = Stands.NAME, "", self._last | {"\n"}
                self._typed = False
            else:
                self._named(emit)
            return True
        self.end(emit)
        if self.state is State.OPEN:
            self.state = State.BROKEN
        return True

    def end(self, emit: Emit) -> None:
        if self._stands is Stands.BEFORE and not self._held:
            emit("{}")
            self.state = State.WHOLE
        elif self._stands is Stands.BEHIND:
            self.state = State.WHOLE
        elif self._stands is Stands.BEFORE:
            emit(self._held)
            self.state = State.BROKEN

    def _named(self, emit: Emit) -> None:
        found = self._pattern.fullmatch(self._held.strip())
        name = legal_name(found[1]) if found else None
        if name is None:
            self.state = State.BROKEN
            return
        self._stands, self._held, self.awaited = Stands.BEFORE, "", self._last
        emit(Named(name))

    def _around(self, text: str, emit: Emit) -> int:
        """Takes text of the name, or text before or behind the arguments."""
        if self._stands in (Stands.TYPE, Stands.NAME):
            self._held += text
            if len(self._held) > 2 * MAX_NAME:
                self.state = State.BROKEN
            return len(text)
        if self._stands is Stands.BEFORE:
            return self._before(text, emit)
        self._held += text
        if len(self._held) > MAX_FENCE or not _BEHIND.fullmatch(self._held):
            emit(self._held)
            self.state = State.BROKEN
        return len(text)

    def _before(self, text: str, emit: Emit) -> int:
        """Takes the text before the arguments, up to their first brace."""
        brace = text.find("{")
        part = text if brace < 0 else text[:brace]
        self._held = (self._held + part).lstrip()
        whole = brace < 0 or self._held.strip() in _FENCES
        if len(self._held) > MAX_FENCE or not _BEFORE.fullmatch(self._held) or not whole:
            emit(self._held)
            self.state = State.BROKEN
        elif brace >= 0:
            self._stands, self._held = Stands.ARGUMENTS, ""
        return len(part)
