"""Readers of one call, in the two forms in which models write them: arguments in JSON, and arguments in XML.

    JsonForm   {"name": "get_weather", "arguments": {"city": "Paris"}}                       Hermes, Qwen
               functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}          Kimi K2
               get_weather[ARGS]{"city": "Paris"}                                            Mistral
               function<|tool_sep|>get_weather, and on lines of their own ```json {…} ```    DeepSeek R1, V3
    XmlForm    <function=get_weather> <parameter=city> Paris </parameter> </function>        Qwen 3 Coder, GLM, MiniMax

A form has the steps of reading a call from behind the mark that opened it: a generator, which says what it awaits, is
sent text without those marks, or one of them, and returns at the end of the call. Meanwhile it emits the name, and then
the arguments as JSON, as they come.
"""

import json
import math
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import UNSET

from service.grammar.schema_values import kind_of, resolve_pointer

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


class TextMark(str):
    """A mark, where others are text."""

    __slots__ = ()


class Awaits(NamedTuple):
    """The marks that mean something next. Text without the `signs`, as in a regex's brackets, goes out as it is, and
    need not be sent; None where all text must.
    """

    marks: frozenset[str]
    signs: str | None = None


T = TypeVar("T")
Taking = Generator[Awaits, str | TextMark | None, T]
"""Takes text, marks, and None where nothing more comes."""

Steps = Taking[tuple[bool, str]]
"""The steps of reading a call. They return whether it is whole, and the end of the last text that is no part of it; one
that isn't whole is none, or it never will be.
"""


class MarkedCall:
    """A call that is being read."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self.awaits = next(steps)
        self.whole: bool | None = None
        """Whether it is whole; None while it is open."""

    def take(self, piece: str | TextMark | None) -> str:
        """Take text, or a mark; returns the end of the text that is no part of the call."""
        try:
            self.awaits = self._steps.send(piece)
        except StopIteration as ended:
            self.whole, left = ended.value
            return left
        return ""


def legal_name(text: str) -> str | None:
    """The name that a text is, or None: one word, and not too long."""
    name = text.strip()
    return name if name.isprintable() and 0 < len(name) <= MAX_NAME and len(name.split()) == 1 else None


def is_object(text: str) -> bool:
    """Whether a text is a JSON object."""
    return isinstance((decode(text) or (None,))[0], dict)


def decode(text: str) -> tuple[Any] | None:
    """The value of a JSON text, in a tuple; None if the text is no JSON."""
    try:
        return (msgspec.json.decode(text),)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


# --- arguments in JSON ------------------------------------------------------------------------------------------------

OUTSIDE = re.compile(r'[{}\[\]"]')
PYTHON = re.compile(r"""[{}()\[\]"']""")
_INSIDE = re.compile(r"""["'\\]""")
_CONTROL = re.compile(r"[\x00-\x1f]")
IN_STRINGS = r'"\\\x00-\x1f'
"""The signs that mean something in a string of JSON, as in a regex's brackets."""


class ObjectScan:
    """Finds the end of an object, or of a string, in text that comes from its first brace or quote on."""

    def __init__(self, depth: int = 0, outside: re.Pattern[str] = OUTSIDE) -> None:
        """`depth` is in how many objects it begins, and `outside` finds the signs that count outside of strings."""
        self._depth = depth
        self._outside = outside
        self._in_string = ""
        """The quote of the string that it is in, if it is in one."""
        self._escaped = False
        self._legal = True

    @property
    def quoting(self) -> bool:
        """Whether it stands inside a string that JSON allows so far, so that any text may be quoted."""
        return bool(self._in_string) and self._legal

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
            found = (_INSIDE if self._in_string else self._outside).search(text, at)
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
        if sign == "\\":
            self._escaped = True
        elif self._in_string:
            self._in_string = "" if sign == self._in_string else self._in_string
        elif sign in "\"'":
            self._in_string = sign
        else:
            self._depth += 1 if sign in "{[(" else -1
        return self._depth == 0 and not self._in_string


_STRING = r'"(?:[^"\\]|\\.)*"'
_IN_OBJECT = re.compile(
    rf'\s*\{{\s*(?:"(?:name"\s*:\s*(?P<name>{_STRING})|(?:id|type)"\s*:\s*{_STRING})\s*,\s*)*'
    r'"(?:arguments|parameters)"\s*:\s*(?=[{"])',
    re.DOTALL,
)
_FENCE = re.compile(r"\s*(?:`{1,3}(?:json)?\s*)?")


class _Object(msgspec.Struct, forbid_unknown_fields=True):
    """A call as one object; a call gets an id of our own."""

    name: str
    arguments: Any = UNSET
    parameters: Any = UNSET
    id: Any = None
    type: Any = None


_OBJECT = msgspec.json.Decoder(_Object)


def _name_in(text: str, *, arguments: bool) -> str:
    """The name in an object that is a call, with arguments or without; "" if it is none."""
    try:
        said = _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    return said.name if (said.arguments is not UNSET) + (said.parameters is not UNSET) == arguments else ""


def emit_name(name: str, emit: Emit, arguments: str = "") -> bool:
    """Emit a name, and the arguments known so far; returns whether it is a name."""
    legal = legal_name(name)
    if legal is not None:
        emit(Named(legal))
        emit(arguments)
    return legal is not None


class JsonForm(msgspec.Struct, frozen=True):
    """A call with arguments in JSON: one object with its name and its arguments, or the arguments behind the name.

    `last` are the marks that end it. Where the name stands before the arguments, `head` finds it, and `separators` are
    the marks in that. White space around the arguments is dropped then, and so is a fence. Unless it is `closed` by a
    mark, the arguments end it.
    """

    last: frozenset[str]
    separators: frozenset[str] = frozenset()
    head: re.Pattern[str] | None = None
    closed: bool = True

    def steps(self, schemas: Schemas, emit: Emit) -> Steps:
        """The steps of reading a call."""
        return self._in_object(emit) if self.head is None else self._behind_name(self.head, emit)

    def _in_object(self, emit: Emit) -> Steps:
        """Arguments go out as they are written. Those that are a string, or stand before the name, wait."""
        scan, held, found = ObjectScan(), "", None
        while found is None:
            piece = yield Awaits(self.last)
            if piece is None or isinstance(piece, TextMark):
                return False, ""
            end, held = scan.end(piece), held + piece
            found = _IN_OBJECT.match(held, 0, MAX_HEAD)
            if found is None and end is not None:  # it has no arguments
                left = piece[end:]
                whole = held[: len(held) - len(left)]
                named = len(whole) <= MAX_HEAD and emit_name(_name_in(whole, arguments=False), emit, "{}")
                return named, left
            if found is None and (len(held) > MAX_HEAD or held.lstrip()[:1] not in ("", "{")):
                return False, ""
        name: str = found["name"] or ""
        text = held[found.end() :]
        waiting: list[str] | None = None if name and text[0] != '"' else []
        if waiting is None and not emit_name(str((decode(name) or ("",))[0]), emit):
            return False, ""
        left = yield from self._value(text, emit, waiting, quoting=True)
        if left is None:
            return False, ""
        tail, whole, left = yield from self._rest(left)
        name = _name_in(f"{found[0]}0{tail}", arguments=True) if whole else ""
        if waiting is None:
            emit("" if name else tail)
            return bool(name), left
        value = "".join(waiting)
        said = decode(value) if value.startswith('"') else (value,)
        return said is not None and emit_name(name, emit, str(said[0])), left

    def _rest(self, text: str) -> Taking[tuple[str, bool, str]]:
        """The rest of an object behind its arguments, whether it is whole, and the text behind it. Where only its last
        brace is missing, it is whole.
        """
        scan, rest = ObjectScan(1), ""
        while (end := scan.end(text)) is None and len(rest) + len(text) <= MAX_HEAD:
            rest += text
            piece = yield Awaits(self.last)
            if piece is None or isinstance(piece, TextMark):
                return (rest, False, "") if rest.strip() else ("}", True, "")
            text = piece
        rest += text[:end]
        return rest, end is not None and len(rest) <= MAX_HEAD, "" if end is None else text[end:]

    def _behind_name(self, head: re.Pattern[str], emit: Emit) -> Steps:
        held = ""
        while (found := head.match(held, 0, MAX_HEAD)) is None:
            piece = None if len(held) > MAX_HEAD else (yield Awaits(self.last | self.separators))
            if piece is None or (isinstance(piece, TextMark) and piece not in self.separators):
                return False, ""
            held += piece
        if not emit_name(found["name"], emit):
            return False, ""
        held = held[found.end() :]
        while "{" not in held and len(held) <= MAX_FENCE:
            piece = yield Awaits(self.last)
            if piece is None or isinstance(piece, TextMark):
                emit(held if held.strip() else "{}")
                return not held.strip(), ""
            held += piece
        fence, brace, text = held.partition("{")
        if len(fence) > MAX_FENCE or not _FENCE.fullmatch(fence):
            emit(held)
            return False, ""
        left = yield from self._value(brace + text, emit, None, quoting=not self.closed)
        if left is not None and not self.closed:
            return True, left
        while left is not None and len(left) <= MAX_FENCE:
            piece = yield Awaits(self.last)
            if piece is None or isinstance(piece, TextMark):
                whole = _FENCE.fullmatch(left) is not None
                emit("" if whole else left)
                return whole, ""
            left += piece
        emit(left or "")
        return False, ""

    def _value(self, text: str, emit: Emit, waiting: list[str] | None, *, quoting: bool) -> Taking[str | None]:
        """Emit a value that begins with this text, or have it wait. Returns the text behind it, None if it has no end.

        Where it is `quoting`, a mark within one of its strings is text.
        """
        scan = ObjectScan()
        while True:
            end = scan.end(text)
            (emit if waiting is None else waiting.append)(text[:end])
            if end is not None:
                return text[end:]
            piece = yield Awaits(self.last, scan.signs if waiting is None else None)
            if piece is None or (isinstance(piece, TextMark) and not (quoting and scan.quoting)):
                return None
            text = piece


# --- arguments in XML -------------------------------------------------------------------------------------------------

TEXT = frozenset({"string"})
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
TAG = re.compile(
    r"""\s*(?:(?:name|tool|key)\s*=\s*)?(?:"([^"]*)"|'([^']*)'|([^\s"']+))(?:\s+(?:string|type)="(\w*)"|\s+index="\d*")?\s*"""
)
"""Matches the inside of a tag: a name, quoted or not, and DeepSeek's or Kimi's word whether the value is a text."""
_TAG_BEGUN = re.compile(r"""\s*(?:(?:name|tool|key)\s*=\s*)?["']?""")


def types_of(root: Mapping[str, Any], schema: Any) -> frozenset[str] | None:
    """The types that a schema within `root` allows; None if it says nothing of that."""
    found = set[str]()
    for each in _meant_by(root, schema):
        named, values = each.get("type"), _as_list(each.get("enum"))
        if "const" in each:
            values = [*values, each["const"]]
        found |= {name for name in (_as_list(named) or [named]) if isinstance(name, str)}
        found |= {kind_of(value) for value in values}
    return frozenset(found) or None


def schema_in(root: Mapping[str, Any], schema: Any, name: str) -> Any:
    """The schema of a member, or of an item, in a schema within `root`; None if it says nothing of that."""
    for each in _meant_by(root, schema):
        other = each.get("items", each.get("additionalProperties"))
        if (found := members_of(each.get("properties")).get(name, other)) is not None:
            return found
    return None


def _meant_by(root: Mapping[str, Any], schema: Any) -> Iterator[Mapping[str, Any]]:
    """A schema, and all that it refers to or chooses among."""
    seen, left = set[int](), [schema]
    while left and len(seen) < MAX_LOOKED_AT:
        each = members_of(left.pop())
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        for keyword in ("anyOf", "oneOf", "allOf"):
            left += _as_list(each.get(keyword))[:MAX_LOOKED_AT]
        with suppress(LookupError, TypeError, ValueError):
            left.append(resolve_pointer(root, each.get("$ref")))


def members_of(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def quote(text: str) -> str:
    """A text as it stands in a JSON string, without the quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def json_of(value: str, types: frozenset[str] | None) -> str:
    """The JSON of a value: the first type that reads it, from the narrowest on, and a text if none does. Nothing is
    invented: the rules of the response say what is wrong with it.
    """
    bare = value.strip()
    said = decode(bare)
    if types is None:
        return bare if said else f'"{quote(value)}"'
    if "null" in types and bare.lower() == "null":
        return "null"
    if ("integer" in types and _INTEGER.fullmatch(bare)) or ("number" in types and NUMBER.fullmatch(bare)):
        return bare
    if "boolean" in types and bare.lower() in ("true", "false"):
        return bare.lower()
    if said and (kind_of(said[0]) in types & {"object", "array"} or "string" not in types):
        return bare
    return f'"{quote(value)}"'


class XmlForm(msgspec.Struct, frozen=True):
    """A call with arguments in XML, of which JSON is made as it comes.

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

    def steps(self, schemas: Schemas, emit: Emit) -> Steps:
        """The steps of reading a call; `schemas` say whether `5` is a number or a text.

        A parameter that can only be a text goes out piece by piece. Any other waits for its end, and is then written as
        the tool's schema types it. A parameter whose end is missing ends where the next one begins, or the call ends.
        """
        names, between = frozenset({*self.name_ends, self.end}), frozenset({self.parameter, self.end, *self.last})
        name, mark = yield from until(names, MAX_NAME)
        while mark == "\n" and not name.strip():
            name, mark = yield from until(names, MAX_NAME)
        found = TAG.fullmatch(name) if mark in names else None
        if found is None or not emit_name(inside_of(found), emit, "{"):
            return False, ""
        schema = members_of(schemas.get(inside_of(found).strip()))
        comma = ""
        while True:
            if mark not in between:
                mark, left = yield from _over_space(between)
                if mark is None:
                    return False, left
            if mark != self.parameter:
                emit("}")
                return True, ""
            written, mark = yield from until(frozenset({self.key_end}), MAX_KEY)
            key, is_text = self._key(written)
            if mark is None or not key:
                begun = _TAG_BEGUN.sub("", written, count=1) if self.tagged else written.strip()
                emit(f'{comma}"{quote(begun)}' if begun else "")
                return False, ""
            emit(f'{comma}"{quote(key)}": ')
            comma = ", "
            types = types_of(schema, schema_in(schema, schema, key)) or (TEXT if is_text else None)
            mark, left = yield from self._parameter(types, emit)
            if mark is None:
                return False, left

    def _key(self, written: str) -> tuple[str, bool]:
        """The key of a parameter, "" where it is none, and whether the tag leaves its value a text."""
        if not self.tagged:
            return written.strip(), True
        found = TAG.fullmatch(written)
        return (inside_of(found), found[4] in (None, "true", "string")) if found else ("", True)

    def _parameter(self, types: frozenset[str] | None, emit: Emit) -> Taking[tuple[TextMark | None, str]]:
        """Emit a value. Returns the mark that ended it, or None and the text that is no part of the call."""
        emit('"' if types == TEXT else "")
        if self.value:
            mark, left = yield from _over_space(frozenset({self.value}))
            if mark is None:
                return None, left
        ends = frozenset({self.parameter_end, self.parameter, self.end})
        if types == TEXT:
            return (yield from self._text(ends, emit)), ""
        value, mark = yield from until(ends)
        if mark is None:
            emit(value)
        else:
            emit(json_of(value.removeprefix("\n").removesuffix("\n") if self.line else value, types))
        return mark, ""

    def _text(self, ends: frozenset[str], emit: Emit) -> Taking[TextMark | None]:
        """Emit a text as it comes, without line breaks around one on lines of its own. Returns the mark at its end."""
        first, held = True, ""
        while True:
            piece = yield Awaits(ends, None if first or held else IN_STRINGS)
            if piece is None or isinstance(piece, TextMark):
                emit('"' if piece else quote(held))
                return piece
            text, held = held + piece, ""
            if self.line:
                text = text.removeprefix("\n") if first else text
                held = "\n" if text.endswith("\n") else ""
                text = text.removesuffix("\n")
            first = False
            emit(quote(text))


def until(marks: frozenset[str], most: float = math.inf) -> Taking[tuple[str, TextMark | None]]:
    """The text up to a mark, and the mark; None where it has more than so many characters, or the mark never comes."""
    parts, chars = list[str](), 0
    while chars <= most:
        piece = yield Awaits(marks)
        if piece is None or isinstance(piece, TextMark):
            return "".join(parts), piece
        parts.append(piece)
        chars += len(piece)
    return "".join(parts), None


def _over_space(marks: frozenset[str]) -> Taking[tuple[TextMark | None, str]]:
    """The mark behind white space, or None and other text that stands there."""
    while True:
        piece = yield Awaits(marks)
        if piece is None or isinstance(piece, TextMark):
            return piece, ""
        if left := piece.lstrip():
            return None, left


def inside_of(found: re.Match[str]) -> str:
    """The name in a tag; Kimi escapes two signs in it."""
    return (found[1] or found[2] or found[3] or "").replace("&quot;", '"').replace("&amp;", "&")
