"""Shapes: what a value must look like, read from a function's TypeScript signature in the prompt.

The renderer's TypeScript is not quite TypeScript (a description's second line stands bare, `"a" | "b"[]` is
an array of both), so the reader is tolerant: what it can't read has the shape Anything, and it never raises.
"""

import json
import re
from dataclasses import dataclass

DEPTH = 16
"""How deep a shape is read; what is nested further has the shape Anything."""

TOKENS = 20_000
"""How much of one signature is read, in TypeScript tokens."""


@dataclass(frozen=True)
class Text:
    """Any string."""


@dataclass(frozen=True)
class Number:
    """A number of at least `least`, and a `whole` one where a schema says so: TypeScript can't."""

    least: float | None = None
    whole: bool = False


@dataclass(frozen=True)
class Boolean:
    """True or false."""


@dataclass(frozen=True)
class Nothing:
    """Null."""


@dataclass(frozen=True)
class Anything:
    """No constraint, or none that could be read."""


@dataclass(frozen=True)
class OneOf:
    """One of these very values: strings, numbers, booleans or null."""

    values: tuple[object, ...]


@dataclass(frozen=True)
class ListOf:
    """An array of at least `least` items."""

    item: "Shape"
    least: int = 1


@dataclass(frozen=True)
class Record:
    """An object with these fields."""

    fields: tuple["Field", ...] = ()


@dataclass(frozen=True)
class Either:
    """A value of any of these shapes."""

    options: tuple["Shape", ...]


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    name: str
    shape: "Shape"
    required: bool


Shape = Text | Number | Boolean | Nothing | Anything | OneOf | ListOf | Record | Either

_NAMED: dict[str, Shape] = {
    "string": Text(),
    "number": Number(),
    "boolean": Boolean(),
    "null": Nothing(),
    "any": Anything(),
    "object": Record(),
    "true": OneOf((True,)),
    "false": OneOf((False,)),
}
_OBJECT_DESCRIPTION = re.compile(r": +//[^\n]*\n(?:(?! *\{)[^\n]*\n){0,50}(?= *\{)")
_TOKEN = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|[\w$-]+(?:\.\d+)?|[^\s\w]')


def read_signature(text: str) -> Record:
    """The arguments of `(_: {…}) => any` as a record; without arguments, an empty one."""
    return _Reader(text).signature()


class _Reader:
    """A cursor over one signature's tokens."""

    def __init__(self, text: str) -> None:
        found = (match[0] for match in _TOKEN.finditer(_OBJECT_DESCRIPTION.sub(": ", text)))
        self._tokens = [token for _, token in zip(range(TOKENS), found, strict=False) if token[:2] != "//"]
        self._place = 0

    def signature(self) -> Record:
        while self._next() and self._next() != "{":
            self._place += 1
        shape = self._shape(DEPTH)
        return shape if isinstance(shape, Record) else Record()

    def _next(self, ahead: int = 0) -> str:
        """The token `ahead` of the cursor; empty past the end."""
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        if self._next() != token:
            return False
        self._place += 1
        return True

    def _shape(self, depth: int) -> Shape:
        self._take("|")
        options = [self._single(depth)]
        while self._take("|"):
            options.append(self._single(depth))
        return _union(options)

    def _single(self, depth: int) -> Shape:
        token = self._next()
        if depth == 0 or token in ("", ",", ";", "}", ")", "]", ">"):
            return Anything()
        self._place += 1
        if token == "{":
            shape = self._record(depth)
        elif token == "(":
            shape = self._shape(depth - 1)
            self._take(")")
        elif token == "Array" and self._take("<"):
            shape = ListOf(self._shape(depth - 1))
            self._take(">")
        else:
            shape = _NAMED.get(token) or _literal(token)
        while self._next() == "[" and self._next(1) == "]":
            self._place += 2
            shape = ListOf(shape)
        return shape

    def _record(self, depth: int) -> Record:
        fields: list[Field] = []
        while self._next() and not self._take("}"):
            required = self._next(1) == ":"
            optional = self._next(1) == "?" and self._next(2) == ":"
            name = self._next()
            self._place += 1
            if not (required or optional):
                continue  # a comma, or a description's second line
            self._place += 1 if required else 2
            fields.append(Field(name.strip('"'), self._shape(depth - 1), required))
        return Record(tuple(fields))


def _literal(token: str) -> Shape:
    """A literal of the signature; a name that nobody defined can be anything."""
    try:
        value: object = json.loads(token)
    except ValueError:
        return Anything()
    return OneOf((value,)) if isinstance(value, str | int | float) else Anything()


def _union(options: list[Shape]) -> Shape:
    """One shape for `a | b`. Literals become one choice.

    Brackets are rendered without parentheses: `"a" | "b"[]` and `string | null[]` are arrays of the whole union.
    """
    if len(options) == 1:
        return options[0]
    last = _innermost(options[-1])
    if last != options[-1] and (last == Nothing() or all(isinstance(o, OneOf) for o in [*options[:-1], last])):
        return _list_of_all(options[:-1], options[-1])
    literals = tuple(value for option in options if isinstance(option, OneOf) for value in option.values)
    others = tuple(option for option in options if not isinstance(option, OneOf))
    if not others:
        return OneOf(literals)
    return Either((OneOf(literals), *others) if literals else others)


def _innermost(shape: Shape) -> Shape:
    """What an array, perhaps of arrays, is made of."""
    while isinstance(shape, ListOf):
        shape = shape.item
    return shape


def _list_of_all(others: list[Shape], last: Shape) -> Shape:
    """The array, perhaps of arrays, of a whole union, where the text has the brackets at its last option."""
    if isinstance(last, ListOf):
        return ListOf(_list_of_all(others, last.item))
    return _union([*others, last])
