"""A call written as XML, of which JSON is made as it comes: Qwen 3 Coder, GLM, MiniMax M2, DeepSeek V3.2 and V4.

    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>

A parameter that can only be a text goes out piece by piece. Any other waits for its end, and is then written as the
tool's schema types it. A parameter whose end is missing ends where the next one begins, or the call ends.

    stands    what comes                    then
    NAME      the name, and a mark          BETWEEN, or KEY
    BETWEEN   the mark of a parameter       KEY
              the closing mark              the call is whole
    KEY       the key, and a mark           GAP, or VALUE
    GAP       the mark of a value           VALUE
    VALUE     text, and a mark              BETWEEN, or KEY, or the call is whole

Models that write arguments as XML write texts without quotes, so `5` may be a number or a text: the schema says
which. Nothing is invented: a value that no type of the schema reads is a text, or JSON as it was written, and the
rules of the response say what is wrong with it.
"""

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, cast

import msgspec

from service.markup.call import IN_STRINGS, MAX_NAME, Emit, Named, State, decoded, legal_name

MAX_LOOKED_AT = 256
"""The most schemas of a parameter that are searched for types: one may refer to others many times, and to itself."""

TEXT = frozenset({"string"})
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")

MAX_KEY = 256
"""The most characters of a parameter's key, with the rest of its tag."""

_TAG = re.compile(r"""\s*(?:name\s*=\s*)?(?:"([^"]*)"|'([^']*)'|([^\s"']+))(?:\s+string="(true|false)")?\s*""")
"""Matches the inside of a tag: a name, quoted or not, and DeepSeek's word whether the value is a text."""
_TAG_BEGUN = re.compile(r"""\s*(?:name\s*=\s*)?["']?""")


def types_of(schema: Mapping[str, Any], key: str) -> frozenset[str] | None:
    """The types that the schema of arguments allows a parameter, or None if it says nothing of that."""
    properties = schema.get("properties")
    declared = cast("Mapping[str, Any]", properties).get(key) if isinstance(properties, Mapping) else None
    return _types(declared, schema) or None


def _types(declared: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """The types of a schema, and of those that it refers to or chooses among, each of which is looked at once."""
    found: set[str] = set()
    seen: set[int] = set()
    left = [declared]
    while left and len(seen) < MAX_LOOKED_AT:
        schema = left.pop()
        if not isinstance(schema, Mapping) or id(cast("Mapping[str, Any]", schema)) in seen:
            continue
        known = cast("Mapping[str, Any]", schema)
        seen.add(id(known))
        found |= _named_types(known)
        for keyword in ("anyOf", "oneOf", "allOf"):
            branches = known.get(keyword)
            left += cast("list[Any]", branches)[:MAX_LOOKED_AT] if isinstance(branches, list) else []
        reference = known.get("$ref")
        if isinstance(reference, str):
            left.append(_referred(reference, root))
    return frozenset(found)


def _named_types(schema: Mapping[str, Any]) -> set[str]:
    """The types that a schema itself names, or whose values it lists."""
    declared, values = schema.get("type"), schema.get("enum")
    named: list[Any] = list(cast("list[Any]", declared)) if isinstance(declared, list) else [declared]
    listed: list[Any] = list(cast("list[Any]", values)) if isinstance(values, list) else []
    if "const" in schema:
        listed.append(schema["const"])
    return {each for each in named if isinstance(each, str)} | {_type_of(each) for each in listed}


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The target of a reference within the schema."""
    place: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(place, Mapping):
            return None
        place = cast("Mapping[str, Any]", place).get(step.replace("~1", "/").replace("~0", "~"))
    return place


def quoted(text: str) -> str:
    """A text as it stands in a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def written(value: str, types: frozenset[str]) -> str:
    """The JSON of a value: the first type that reads it, from the narrowest on, and a text if none does."""
    bare = value.strip()
    if "null" in types and bare.lower() == "null":
        return "null"
    if "integer" in types and _INTEGER.fullmatch(bare):
        return bare
    if "number" in types and _NUMBER.fullmatch(bare):
        return bare
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower()
    said = decoded(bare)
    fits = said is not None and (
        (isinstance(said[0], dict) and "object" in types) or (isinstance(said[0], list) and "array" in types)
    )
    if fits or (said is not None and "string" not in types):
        return bare
    return f'"{quoted(value)}"'


class Shape(msgspec.Struct, frozen=True):
    """The marks of one form.

    The key stands between `parameter` and `key_end`, in an attribute where `tagged`; `value` begins a value,
    where that needs a mark of its own. With `line`, a value stands on lines of its own. `last` are other marks that
    end a call.
    """

    name_ends: tuple[str, ...]
    parameter: str
    key_end: str
    parameter_end: str
    end: str
    value: str = ""
    line: bool = False
    tagged: bool = False
    last: tuple[str, ...] = ()

    def awaited(self) -> "dict[Stands, frozenset[str]]":
        """The marks that mean something in each place."""
        ends = {self.end, *self.last}
        return {
            Stands.NAME: frozenset({*self.name_ends, self.end}),
            Stands.BETWEEN: frozenset({self.parameter, *ends}),
            Stands.KEY: frozenset({self.key_end}),
            Stands.GAP: frozenset({self.value}),
            Stands.VALUE: frozenset({self.parameter_end, self.parameter, self.end}),
        }


class Stands(Enum):
    """Where in the call it stands; see the table above."""

    NAME = "name"
    BETWEEN = "between"
    KEY = "key"
    GAP = "gap"
    VALUE = "value"


class XmlCall:
    """Reads such a call, from behind the mark before its name; `schemas` are those of the tools' arguments."""

    def __init__(self, shape: Shape, marks: Mapping[Stands, frozenset[str]], schemas: Mapping[str, Any]) -> None:
        self.state = State.OPEN
        self._shape = shape
        self._marks = marks
        self._schemas = schemas
        self._schema: Mapping[str, Any] = {}
        self._stands = Stands.NAME
        self.awaited = marks[Stands.NAME]
        self._held = ""
        """The name or the key so far; of a text, a line break that may be its last character."""
        self._first = True
        """Whether no parameter came yet."""
        self._types: frozenset[str] | None = None
        self._value: list[str] | None = None
        """The parts of a value that waits for its end; None of one that goes out as it comes."""
        self._fresh = False
        """Whether nothing of the value came yet."""

    @property
    def signs(self) -> str | None:
        waits = self._value is not None or self._held or self._fresh
        return None if waits or self._stands is not Stands.VALUE else IN_STRINGS

    def text(self, text: str, emit: Emit) -> int:
        if self._stands is Stands.VALUE:
            self._part(text, emit)
        elif self._stands in (Stands.BETWEEN, Stands.GAP):
            space = len(text) - len(text.lstrip())
            if space < len(text):
                self.state = State.BROKEN
            return space
        else:
            self._held += text
            if len(self._held) > (MAX_NAME if self._stands is Stands.NAME else MAX_KEY):
                self._break(emit)
        return len(text)

    def mark(self, mark: str, emit: Emit) -> bool:
        shape = self._shape
        match self._stands:
            case Stands.NAME:
                self._named(mark, emit)
            case Stands.KEY:
                self._keyed(emit)
            case Stands.GAP:
                self._to(Stands.VALUE)
            case Stands.VALUE:
                self._valued(emit)
                self._behind(mark if mark != shape.parameter_end else "", emit)
            case Stands.BETWEEN:
                self._behind(mark, emit)
        return True

    def end(self, emit: Emit) -> None:
        if self._stands is not Stands.NAME:
            self._break(emit)

    def _to(self, stands: Stands) -> None:
        self._stands, self._held, self.awaited = stands, "", self._marks[stands]

    def _named(self, mark: str, emit: Emit) -> None:
        if mark not in self.awaited:
            self.state = State.BROKEN
            return
        if mark == "\n" and not self._held.strip():
            return
        found = _TAG.fullmatch(self._held)
        name = legal_name(_inside(found)) if found else None
        if name is None:
            self.state = State.BROKEN
            return
        schema = self._schemas.get(name)
        self._schema = schema if isinstance(schema, Mapping) else {}
        self._to(Stands.BETWEEN)
        emit(Named(name))
        emit("{")
        self._behind(mark if mark in (self._shape.parameter, self._shape.end) else "", emit)

    def _behind(self, mark: str, emit: Emit) -> None:
        """Go on behind the name or a value, at the mark that stands there, if one does."""
        if mark == self._shape.parameter:
            self._to(Stands.KEY)
        elif mark:
            emit("}")
            self.state = State.WHOLE
        else:
            self._to(Stands.BETWEEN)

    def _keyed(self, emit: Emit) -> None:
        found = _TAG.fullmatch(self._held) if self._shape.tagged else None
        key = _inside(found) if found else "" if self._shape.tagged else self._held.strip()
        if not key:
            self._break(emit)
            return
        emit(f'{"" if self._first else ", "}"{quoted(key)}": ')
        said = found[4] if found else None
        types = types_of(self._schema, key)
        self._first = False
        self._types = types or (TEXT if said in (None, "true") else None)
        self._value = None if self._types == TEXT else []
        self._fresh = True
        if self._value is None:
            emit('"')
        self._to(Stands.GAP if self._shape.value else Stands.VALUE)

    def _part(self, text: str, emit: Emit) -> None:
        """Take a part of a value. One on lines of its own has a line break before it and behind it, which go."""
        if self._value is not None:
            self._value.append(text)
            return
        text, self._held = self._held + text, ""
        if self._shape.line:
            text = text.removeprefix("\n") if self._fresh else text
            self._held = "\n" if text.endswith("\n") else ""
            text = text.removesuffix("\n")
        self._fresh = False
        if text:
            emit(quoted(text))

    def _valued(self, emit: Emit) -> None:
        """A value ends."""
        if self._value is None:
            emit('"')
            return
        value = "".join(self._value)
        if self._shape.line:
            value = value.removeprefix("\n").removesuffix("\n")
        if self._types is None:
            emit(value.strip() if decoded(value) else f'"{quoted(value)}"')
        else:
            emit(written(value, self._types))

    def _break(self, emit: Emit) -> None:
        """The call will never be whole: the held text goes out, as the beginning of an argument."""
        self.state = State.BROKEN
        if self._stands is Stands.KEY:
            key = _TAG_BEGUN.sub("", self._held, count=1) if self._shape.tagged else self._held.strip()
            if key:
                emit(f'{"" if self._first else ", "}"{quoted(key)}')
        elif self._stands is Stands.VALUE:
            emit("".join(self._value) if self._value is not None else quoted(self._held))


def _inside(found: re.Match[str]) -> str:
    """The name in a tag."""
    return found[1] or found[2] or found[3] or ""
