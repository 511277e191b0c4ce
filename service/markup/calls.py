"""Readers of one call, in the two forms in which models write them: arguments in JSON, and arguments in XML.

    JsonForm   {"name": "get_weather", "arguments": {"city": "Paris"}}                       Hermes, Qwen
               functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}          Kimi K2
               function<|tool_sep|>get_weather, and on lines of their own ```json {…} ```    DeepSeek R1, V3
    XmlForm    <function=get_weather> <parameter=city> Paris </parameter> </function>        Qwen 3 Coder, GLM, MiniMax

A reader goes from behind the mark that opened its call. It is given text without its `awaited` marks, of which it says
how much it took, and those marks; it emits the name, and then the arguments as JSON, as they come.
"""

import json
import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cached_property
from types import NoneType
from typing import Any, cast

import msgspec
from msgspec import UNSET

MAX_NAME = 128
"""The most characters of a name; a longer text is none, and the parser doesn't wait for its end."""

MAX_HEAD = 4 * MAX_NAME
"""The most characters around a name and its arguments that wait in one piece, white space included."""

MAX_FENCE = 64
"""The most characters between a name and its arguments, and behind these."""

MAX_KEY = 256
"""The most characters of a parameter's key, with the rest of its tag."""

MAX_LOOKED_AT = 256
"""The most schemas of a parameter that are searched for types: one may refer to others many times, and to itself."""


class Named(msgspec.Struct, frozen=True):
    """A call is one: it has a name. Its arguments follow as text."""

    name: str


Read = Named | str
Emit = Callable[[Read], None]
Schemas = Mapping[str, Mapping[str, Any]]
"""The JSON schema of the arguments of each tool, by its name."""


class State(Enum):
    """Where a call stands."""

    OPEN = "open"
    WHOLE = "whole"
    """It is written to its end."""
    BROKEN = "broken"
    """It is none, or it will never be whole."""


def legal_name(text: str) -> str | None:
    """The name that a text is, or None: one word, and not too long."""
    name = text.strip()
    return name if name.isprintable() and 0 < len(name) <= MAX_NAME and len(name.split()) == 1 else None


def is_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    return isinstance((decoded(text) or (None,))[0], dict)


def decoded(text: str) -> tuple[Any] | None:
    """The value of a JSON text, in a tuple; None if the text is no JSON."""
    try:
        return (msgspec.json.decode(text),)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


# --- arguments in JSON ------------------------------------------------------------------------------------------------

_OUTSIDE = re.compile(r'[{}\[\]"]')
_INSIDE = re.compile(r'["\\]')
_CONTROL = re.compile(r"[\x00-\x1f]")
IN_STRINGS = r'"\\\x00-\x1f'
"""The signs that mean something in a string of JSON, as in a regex's brackets."""


class ObjectScan:
    """Finds the end of an object, or of a string, in text that comes from its first brace or quote on."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._legal = True

    @property
    def quoting(self) -> bool:
        """Whether it stands inside a string that JSON allows so far, so that any text may be quoted."""
        return self._in_string and self._legal

    @property
    def signs(self) -> str | None:
        """The signs that change where it stands, as in a regex's brackets; None where any does."""
        return None if self._escaped else IN_STRINGS if self._in_string else r'{}\[\]"'

    def end(self, text: str, at: int = 0) -> int | None:
        """Where in the text the object ends that goes on from `at`, or None if it goes on behind the text."""
        while at < len(text):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if self._in_string and _CONTROL.search(text, at, found.start() if found else len(text)):
                self._legal = False
            if found is None:
                return None
            at = found.end()
            if self._step(found[0]):
                return at
        return None

    def _step(self, sign: str) -> bool:
        """Take a sign that counts; whether it ends the object."""
        if sign == '"':
            self._in_string = not self._in_string
        elif sign == "\\":
            self._escaped = True
        else:
            self._depth += 1 if sign in "{[" else -1
        return self._depth == 0 and not self._in_string


_STRING = r'"(?:[^"\\]|\\.)*"'
_IN_OBJECT = re.compile(
    rf'\s*\{{\s*(?:"(?:name"\s*:\s*(?P<name>{_STRING})|(?:id|type)"\s*:\s*{_STRING})\s*,\s*)*'
    r'"(?:arguments|parameters)"\s*:\s*(?=[{"])',
    re.DOTALL,
)
_FENCE = re.compile(r"\s*(?:`{1,3}(?:json)?\s*)?")


class JsonForm(msgspec.Struct, frozen=True):
    """A call with arguments in JSON: one object with its name and its arguments, or the arguments behind the name.

    `last` are the marks that end it. Where the name stands before the arguments, `head` finds it, and `separators` are
    the marks in that. White space around the arguments is dropped then, and so is a fence.
    """

    last: tuple[str, ...]
    separators: tuple[str, ...] = ()
    head: re.Pattern[str] = _IN_OBJECT

    def reader(self, schemas: Schemas) -> "JsonCall":
        """The reader of a call."""
        return JsonCall(self)


class _Object(msgspec.Struct, forbid_unknown_fields=True):
    """A call as one object; a call gets an id of our own."""

    name: str
    arguments: Any = UNSET
    parameters: Any = UNSET
    id: Any = None
    type: Any = None


_object = msgspec.json.Decoder(_Object).decode


class _In(Enum):
    """The part of a call with arguments in JSON."""

    HEAD = "head"
    OPENING = "opening"
    ARGUMENTS = "arguments"
    TAIL = "tail"


class JsonCall:
    """Reads a call with arguments in JSON, which go out from their first brace to their last, as they are written.

    Arguments that are a string wait to be decoded, and those before the name wait for it.
    """

    def __init__(self, form: JsonForm) -> None:
        self.state = State.OPEN
        self.awaited = frozenset((*form.last, *form.separators))
        self._form = form
        self._part = _In.HEAD
        self._held = ""
        """The text around the arguments that isn't read yet."""
        self._before = ""
        """The object up to its arguments, for which 0 stands."""
        self._waiting: list[str] | None = None
        """Arguments that can't go out yet, where they have to wait."""
        self._named = False
        self._scan = ObjectScan()
        """Of the arguments; before and behind them, of the object around them."""

    @property
    def signs(self) -> str | None:
        """The signs that mean something where its arguments stand, as in a regex's brackets: text without them goes out
        as it is, and need not be taken. None where all text must.
        """
        return self._scan.signs if self._part is _In.ARGUMENTS and self._waiting is None else None

    def text(self, text: str, emit: Emit) -> int:
        """Take text; how much of it was taken: the rest is no part of the call."""
        at = 0
        while at < len(text) and self.state is State.OPEN:
            if self._part is _In.HEAD:
                at = self._head(text, at, emit)
            elif self._part is _In.ARGUMENTS:
                at = self._arguments(text, at, emit)
            else:
                at = self._around(text, at, emit)
        return at

    def mark(self, mark: str, emit: Emit) -> bool:
        """Take one of the awaited marks, or say that it is text at this point: a string of an object quotes it."""
        if self._part is _In.ARGUMENTS and not self._form.separators and self._scan.quoting:
            return False
        if mark in self._form.separators:
            self._head(mark, 0, emit)
            return True
        self.end(emit)
        if self.state is State.OPEN:
            self._break(emit)
        return True

    def end(self, emit: Emit) -> None:
        """Nothing more comes: become whole if only the closing mark, or a last brace, is missing."""
        if self._part is _In.TAIL and not self._form.separators and not self._held.strip():
            self._held = "}"
            self._finish(emit)
        elif self._part is _In.OPENING and not self._held.strip():
            emit("{}")
            self.state = State.WHOLE
        elif self._part is _In.TAIL and self._form.separators and _FENCE.fullmatch(self._held):
            self.state = State.WHOLE
        elif self._held and self._named:
            self._break(emit)

    def _head(self, text: str, at: int, emit: Emit) -> int:
        """Take text of the head. The object ends within it where there are no arguments."""
        begin = at - len(self._held)
        self._held += text[at:]
        found = self._form.head.match(self._held, 0, MAX_HEAD)
        if found:
            self._begin(found, emit)
            return begin + found.end()
        if not self._form.separators:
            end = self._scan.end(text, at)
            if end is not None and end - begin <= MAX_HEAD:
                self._held = self._held[: end - begin]
                self._finish(emit)
                return end
            if self._held.strip() and not self._held.lstrip().startswith("{"):
                self.state = State.BROKEN
        if len(self._held) > MAX_HEAD:
            self.state = State.BROKEN
        return len(text)

    def _begin(self, found: re.Match[str], emit: Emit) -> None:
        """The arguments begin, or what may stand before them."""
        name: str | None = found["name"]
        if self._form.separators:
            self._part, self.awaited = _In.OPENING, frozenset(self._form.last)
        else:
            self._part, self._before, self._scan = _In.ARGUMENTS, f"{found[0]}0", ObjectScan()
            if name is None or self._held[found.end()] == '"':
                self._waiting = []
            else:
                name = str((decoded(name) or ("",))[0])
        self._held = ""
        if self._waiting is None:
            self._name(name, emit)

    def _name(self, written: str | None, emit: Emit) -> None:
        name = legal_name(written or "")
        if name is None:
            self.state = State.BROKEN
        else:
            self._named = True
            emit(Named(name))

    def _arguments(self, text: str, at: int, emit: Emit) -> int:
        end = self._scan.end(text, at)
        if self._waiting is None:
            emit(text[at:end])
        else:
            self._waiting.append(text[at:end])
        if end is None:
            return len(text)
        self._part, self._scan = _In.TAIL, ObjectScan()
        self._scan.end("{")
        return end

    def _around(self, text: str, at: int, emit: Emit) -> int:
        """Take text before the arguments, up to their brace, or behind them."""
        most, end = MAX_FENCE, None
        if self._part is _In.OPENING:
            end = text.find("{", at) if "{" in text[at:] else None
        elif not self._form.separators:
            most, end = MAX_HEAD, self._scan.end(text, at)
        self._held += text[at:end]
        if len(self._held) > most:
            self._break(emit)
        elif end is not None and self._part is _In.TAIL:
            self._finish(emit)
        elif end is not None and _FENCE.fullmatch(self._held):
            self._part, self._held = _In.ARGUMENTS, ""
        elif end is not None:
            self._break(emit)
        return len(text) if end is None else end

    def _finish(self, emit: Emit) -> None:
        """The object has ended: all that waits goes out, if it is a call."""
        try:
            said = _object(self._before + self._held)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return self._break(emit)
        given = [each for each in (said.arguments, said.parameters) if each is not UNSET]
        waiting = ["{}"] if not self._before else self._waiting
        if waiting and waiting[0].startswith('"'):
            value = decoded("".join(waiting))
            waiting = [str(value[0])] if value else []
        if len(given) != bool(self._before) or waiting == []:
            return self._break(emit)
        if waiting is not None:
            self._name(said.name, emit)
        if waiting is not None and self._named:
            emit("".join(waiting))
        if self.state is State.OPEN:
            self.state = State.WHOLE
        return None

    def _break(self, emit: Emit) -> None:
        """The call will never be whole; behind its name, the held text goes out."""
        if self._named and self._held:
            emit(self._held)
        self.state = State.BROKEN


# --- arguments in XML -------------------------------------------------------------------------------------------------

_TEXT = frozenset({"string"})
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_TAG = re.compile(r"""\s*(?:name\s*=\s*)?(?:"([^"]*)"|'([^']*)'|([^\s"']+))(?:\s+string="(true|false)")?\s*""")
"""Matches the inside of a tag: a name, quoted or not, and DeepSeek's word whether the value is a text."""
_TAG_BEGUN = re.compile(r"""\s*(?:name\s*=\s*)?["']?""")
_TYPES = {
    NoneType: "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def types_of(root: Mapping[str, Any], key: str) -> frozenset[str] | None:
    """The types that the schema of arguments allows a parameter, also by what it refers to or chooses among; None if it
    says nothing of that.
    """
    found, seen = set[str](), set[int]()
    left: list[Any] = [_members(root.get("properties")).get(key)]
    while left and len(seen) < MAX_LOOKED_AT:
        schema = _members(left.pop())
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        named, values = schema.get("type"), _listed(schema.get("enum"))
        if "const" in schema:
            values = [*values, schema["const"]]
        found |= {each for each in (_listed(named) or [named]) if isinstance(each, str)}
        found |= {_TYPES[type(each)] for each in values}
        for keyword in ("anyOf", "oneOf", "allOf"):
            left += _listed(schema.get(keyword))[:MAX_LOOKED_AT]
        if isinstance(reference := schema.get("$ref"), str):
            left.append(_referred(reference, root))
    return frozenset(found) or None


def _members(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The target of a reference within the schema."""
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        place = _members(place).get(step.replace("~1", "/").replace("~0", "~"))
    return place


def _quoted(text: str) -> str:
    """A text as it stands in a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _written(value: str, types: frozenset[str] | None) -> str:
    """The JSON of a value: the first type that reads it, from the narrowest on, and a text if none does. Nothing is
    invented: the rules of the response say what is wrong with it.
    """
    bare = value.strip()
    said = decoded(bare)
    if types is None:
        return bare if said else f'"{_quoted(value)}"'
    if "null" in types and bare.lower() == "null":
        return "null"
    if ("integer" in types and _INTEGER.fullmatch(bare)) or ("number" in types and _NUMBER.fullmatch(bare)):
        return bare
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower()
    if said and (_TYPES[type(said[0])] in types & {"object", "array"} or "string" not in types):
        return bare
    return f'"{_quoted(value)}"'


class _Stands(Enum):
    """Where in a call with arguments in XML it stands.

    NAME      the name, and a mark          BETWEEN, or KEY
    BETWEEN   the mark of a parameter       KEY
              the closing mark              the call is whole
    KEY       the key, and a mark           GAP, or VALUE
    GAP       the mark of a value           VALUE
    VALUE     text, and a mark              BETWEEN, or KEY, or the call is whole
    """

    NAME = "name"
    BETWEEN = "between"
    KEY = "key"
    GAP = "gap"
    VALUE = "value"


class XmlForm(msgspec.Struct, frozen=True, dict=True):
    """A call with arguments in XML.

    `name_ends` are the marks that end its name. The key of a parameter stands between `parameter` and `key_end`, in an
    attribute where `tagged`; `value` begins a value, where that needs a mark of its own. With `line`, a value stands on
    lines of its own. `end` closes the call; `last` are other marks that do.
    """

    end: str
    parameter: str
    parameter_end: str
    key_end: str = ">"
    value: str = ""
    name_ends: tuple[str, ...] = (">",)
    line: bool = False
    tagged: bool = False
    last: tuple[str, ...] = ()

    @cached_property
    def awaited(self) -> dict[_Stands, frozenset[str]]:
        """The marks that mean something in each place."""
        return {
            _Stands.NAME: frozenset({*self.name_ends, self.end}),
            _Stands.BETWEEN: frozenset({self.parameter, self.end, *self.last}),
            _Stands.KEY: frozenset({self.key_end}),
            _Stands.GAP: frozenset({self.value}),
            _Stands.VALUE: frozenset({self.parameter_end, self.parameter, self.end}),
        }

    def reader(self, schemas: Schemas) -> "XmlCall":
        """The reader of a call; `schemas` say whether `5` is a number or a text."""
        return XmlCall(self, schemas)


class XmlCall:
    """Reads a call with arguments in XML, of which JSON is made as it comes.

    A parameter that can only be a text goes out piece by piece. Any other waits for its end, and is then written as the
    tool's schema types it. A parameter whose end is missing ends where the next one begins, or the call ends.
    """

    def __init__(self, form: XmlForm, schemas: Schemas) -> None:
        self.state = State.OPEN
        self._form = form
        self._schemas = schemas
        self._schema: Mapping[str, Any] = {}
        self._to(_Stands.NAME)
        self._comma = ""
        """The text between two parameters, before any but the first."""
        self._types: frozenset[str] | None = None
        self._value: list[str] | None = None
        """The parts of a value that waits for its end; None of one that goes out as it comes."""
        self._fresh = False
        """Whether nothing of the value came yet."""

    @property
    def signs(self) -> str | None:
        """The signs that mean something in a text that goes out as it comes; see JsonCall."""
        waits = self._stands is not _Stands.VALUE or self._value is not None or self._held or self._fresh
        return None if waits else IN_STRINGS

    def text(self, text: str, emit: Emit) -> int:
        """Take text; how much of it was taken: the rest is no part of the call."""
        if self._stands is _Stands.VALUE:
            self._part(text, emit)
        elif self._stands in (_Stands.BETWEEN, _Stands.GAP):
            space = len(text) - len(text.lstrip())
            if space < len(text):
                self.state = State.BROKEN
            return space
        else:
            self._held += text
            if len(self._held) > (MAX_NAME if self._stands is _Stands.NAME else MAX_KEY):
                self.end(emit)
        return len(text)

    def mark(self, mark: str, emit: Emit) -> bool:
        """Take one of the awaited marks."""
        match self._stands:
            case _Stands.NAME:
                self._named(mark, emit)
            case _Stands.KEY:
                self._keyed(emit)
            case _Stands.GAP:
                self._to(_Stands.VALUE)
            case _Stands.VALUE:
                self._valued(emit)
                self._behind(mark, emit)
            case _Stands.BETWEEN:
                self._behind(mark, emit)
        return True

    def end(self, emit: Emit) -> None:
        """Nothing more comes: it will never be whole, and the held text goes out as the beginning of an argument."""
        self.state = State.BROKEN
        if self._stands is _Stands.KEY:
            key = _TAG_BEGUN.sub("", self._held, count=1) if self._form.tagged else self._held.strip()
            if key:
                emit(f'{self._comma}"{_quoted(key)}')
        elif self._stands is _Stands.VALUE:
            emit("".join(self._value) if self._value is not None else _quoted(self._held))

    def _to(self, stands: _Stands) -> None:
        self._stands, self.awaited = stands, self._form.awaited[stands]
        self._held = ""
        """The name or the key so far; of a text, a line break that may be its last character."""

    def _named(self, mark: str, emit: Emit) -> None:
        if mark == "\n" and not self._held.strip():
            return
        found = _TAG.fullmatch(self._held) if mark in self.awaited else None
        name = legal_name(_inside(found)) if found else None
        if name is None:
            self.state = State.BROKEN
            return
        self._schema = _members(self._schemas.get(name))
        emit(Named(name))
        emit("{")
        self._behind(mark, emit)

    def _behind(self, mark: str, emit: Emit) -> None:
        """Go on behind the name or a value, at the mark that stands there."""
        if mark == self._form.parameter:
            self._to(_Stands.KEY)
        elif mark == self._form.end or mark in self._form.last:
            emit("}")
            self.state = State.WHOLE
        else:
            self._to(_Stands.BETWEEN)

    def _keyed(self, emit: Emit) -> None:
        found = _TAG.fullmatch(self._held) if self._form.tagged else None
        key = _inside(found) if found else "" if self._form.tagged else self._held.strip()
        if not key:
            return self.end(emit)
        emit(f'{self._comma}"{_quoted(key)}": ')
        is_text = found is None or found[4] in (None, "true")
        self._comma, self._fresh = ", ", True
        self._types = types_of(self._schema, key) or (_TEXT if is_text else None)
        self._value = None if self._types == _TEXT else []
        if self._value is None:
            emit('"')
        return self._to(_Stands.GAP if self._form.value else _Stands.VALUE)

    def _part(self, text: str, emit: Emit) -> None:
        """Take a part of a value. One on lines of its own has a line break before it and behind it, which go."""
        if self._value is not None:
            self._value.append(text)
            return
        text, self._held = self._held + text, ""
        if self._form.line:
            text = text.removeprefix("\n") if self._fresh else text
            self._held = "\n" if text.endswith("\n") else ""
            text = text.removesuffix("\n")
        self._fresh = False
        if text:
            emit(_quoted(text))

    def _valued(self, emit: Emit) -> None:
        """A value ends."""
        if self._value is None:
            emit('"')
            return
        value = "".join(self._value)
        emit(_written(value.removeprefix("\n").removesuffix("\n") if self._form.line else value, self._types))


def _inside(found: re.Match[str]) -> str:
    """The name in a tag."""
    return found[1] or found[2] or found[3] or ""


Call = JsonCall | XmlCall
