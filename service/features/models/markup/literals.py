"""Readers of calls whose arguments are neither JSON nor flat XML: literals, and elements within elements.

    LiteralForm   f(city='Paris', days=3), g()                              Llama 4
                  call:f{city:<|"|>Paris<|"|>,days:3}                       Gemma 4
    ElementForm   <invoke name="f"> <near> <item>Paris</item> </near> …     MiniMax M3, with a mark before each tag

JSON is made of them as they come: of literals by each sign, of elements by each parameter. See calls.py for steps.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.features.models.markup.calls import (
    MAX_HEAD,
    MAX_KEY,
    MAX_NAME,
    NUMBER,
    TAG,
    Awaits,
    Emit,
    Schemas,
    Steps,
    Taking,
    TextMark,
    emit_name,
    inside_of,
    json_of,
    members_of,
    quote,
    types_of,
    until,
)

MAX_DEPTH = 64
"""How many literals, or elements, may stand in one another."""

# --- literals ---------------------------------------------------------------------------------------------------------

_PAIRS = {"{": "}", "[": "]", "(": ")"}
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_SIGN = re.compile(r"[,:=\[\]{}()'\"]")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU])", re.DOTALL)
_LONGEST_ESCAPE = 10
_PLAIN = {quote: re.compile(rf"(?:[^\\{quote}]|{_ESCAPE.pattern})*", re.DOTALL) for quote in "'\""}
"""Matches as much of a text as is surely within a string, by its quote."""
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "\n": ""}

_KEY, _COLON, _VALUE, _DONE = "key", "colon", "value", "done"
"""The next thing that may come in a literal; behind the last one, a comma or its end."""


class LiteralForm(msgspec.Struct, frozen=True):
    """A call with arguments as literals. `head` finds the name and the bracket behind it, `begun` is what may become
    that, and `closes` is the bracket that ends the call. A string stands between two marks `quote`; without one, words
    and strings are those of Python. `last` are the marks that end a call.
    """

    head: re.Pattern[str]
    begun: re.Pattern[str]
    closes: str
    quote: str = ""
    last: frozenset[str] = frozenset()

    def steps(self, schemas: Schemas, emit: Emit) -> Steps:
        """The steps of reading a call; `schemas` type words that stand without quotes."""
        held = ""
        while (found := self.head.match(held, 0, MAX_HEAD)) is None:
            possible = len(held) <= MAX_HEAD and self.begun.fullmatch(held)
            piece = (yield Awaits(self._marks)) if possible else None
            if piece is None or isinstance(piece, TextMark):
                return False, ""
            held += piece
        if not emit_name(found["name"], emit, "{"):
            return False, ""
        return (yield from self._literals(held[found.end() :], members_of(schemas.get(found["name"])), emit))

    @property
    def _marks(self) -> frozenset[str]:
        return self.last | {self.quote} - {""}

    def _literals(self, text: str, schema: Mapping[str, Any], emit: Emit) -> Steps:
        """Emit the arguments that begin with this text, up to their end or to the first sign that can't stand there."""
        closers, state, comma, named = [self.closes], _KEY, "", ""
        while True:
            found = _SIGN.search(text)
            if found is None:
                piece = (yield Awaits(self._marks)) if len(text) <= MAX_KEY else None
                if isinstance(piece, TextMark) and piece == self.quote and state in (_KEY, _VALUE) and not text.strip():
                    sign, word, text = str(piece), "", ""
                elif piece is None or isinstance(piece, TextMark):
                    emit(text + (piece if piece == self.quote and piece else ""))
                    return False, ""
                else:
                    text += piece
                    continue
            else:
                sign, word, text = found[0], text[: found.start()], text[found.end() :]
            if word.strip():
                value = self._word(word.strip(), schema, state, named if len(closers) == 1 else "")
                if value is None or len(word) > MAX_KEY:
                    emit(word)
                    return False, sign + text
                emit(comma + value)
                named, state, comma = (word.strip(), _COLON, "") if state == _KEY else (named, _DONE, "")
            if sign in (self.quote or "'\"") and state in (_KEY, _VALUE) and (not self.quote or sign == self.quote):
                emit(f'{comma}"')
                left = yield from self._string(sign, text, emit)
                if left is None:
                    return False, ""
                emit('"')
                state, comma, text = _COLON if state == _KEY else _DONE, "", left
            elif sign in ":=" and state == _COLON:
                emit(": ")
                state = _VALUE
            elif sign in _PAIRS and state == _VALUE and len(closers) < MAX_DEPTH:
                emit(f"{comma}{'{' if sign == '{' else '['}")
                closers.append(_PAIRS[sign])
                state, comma = _KEY if sign == "{" else _VALUE, ""
            elif sign == "," and state == _DONE:
                state, comma = _KEY if closers[-1] == "}" or len(closers) == 1 else _VALUE, ", "
            elif sign == closers[-1] and (state in (_KEY, _DONE) or (state == _VALUE and closers[-1] in "])")):
                closers.pop()
                emit("]" if closers and sign != "}" else "}")
                if not closers:
                    return True, text
                state, comma = _DONE, ""
            elif found is None:
                emit(sign)
                return False, ""
            else:
                return False, sign + text

    def _word(self, word: str, schema: Mapping[str, Any], state: str, named: str) -> str | None:
        """The JSON of a key, or of a bare value of the parameter that is `named`; None where none may come."""
        if state == _KEY:
            return f'"{quote(word)}"'
        if state != _VALUE:
            return None
        if self.quote:
            return json_of(word, types_of(schema, named) if named else None)
        return _WORDS.get(word) or (word if NUMBER.fullmatch(word) else None)

    def _string(self, sign: str, text: str, emit: Emit) -> Taking[str | None]:
        """Emit a string; returns the text behind it, None where it has no end."""
        while True:
            if self.quote:
                emit(quote(text))
                text = ""
            elif (found := _PLAIN[sign].match(text)) is not None:
                emit(quote(_ESCAPE.sub(_meaning, found[0])))
                text = text[found.end() :]
                if text[:1] == sign:
                    return text[1:]
                if len(text) >= _LONGEST_ESCAPE:  # a backslash alone
                    emit(quote(text[0]))
                    text = text[1:]
                    continue
            piece = yield Awaits(self._marks)
            if piece is None or isinstance(piece, TextMark):
                emit(quote(text))
                return "" if piece and piece == self.quote else None
            text += piece


def _meaning(escape: re.Match[str]) -> str:
    """The character that an escape of Python's means; half of a pair of surrogates is none."""
    sign, digits = escape[0][1], escape[0][2:]
    if not digits:
        return _ESCAPED.get(sign) or (sign if sign in "'\"\\" else escape[0])
    code = int(digits, 16)
    return "\ufffd" if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF else chr(code)


# --- elements within elements -----------------------------------------------------------------------------------------


class _Element(msgspec.Struct):
    """An element that was opened, its schema, the text in it, and its children by name, as JSON."""

    name: str
    schema: Mapping[str, Any]
    text: str = ""
    children: list[tuple[str, str]] = []


class ElementForm(msgspec.Struct, frozen=True):
    """A call whose parameters are elements, of which each may hold others. `tag` begins a tag, and `end` is the name of
    the call's own.
    """

    tag: str
    end: str

    def steps(self, schemas: Schemas, emit: Emit) -> Steps:
        """The steps of reading a call. A parameter goes out once it has ended, typed by the tool's schema."""
        name, mark = yield from until(frozenset({">"}), MAX_NAME)
        found = TAG.fullmatch(name) if mark else None
        if found is None or not emit_name(inside_of(found), emit, "{"):
            return False, ""
        whole = yield from self._parameters(members_of(schemas.get(inside_of(found).strip())), emit)
        return whole, ""

    def _parameters(self, schema: Mapping[str, Any], emit: Emit) -> Taking[bool]:
        """Emit the parameters up to the call's end, or as written from the one on that breaks; whether it is whole."""
        opened = [_Element("", schema)]
        comma, raw = "", list[str]()
        while True:
            text, mark = yield from until(frozenset({self.tag}))
            tag, ended = (yield from until(frozenset({">"}), MAX_KEY)) if mark else ("", None)
            raw += [text, mark or "", tag, ended or ""]
            opened[-1].text += text
            whole = not opened[-1].text.strip() or (not opened[-1].children and tag.startswith("/"))
            if not ended or (len(opened) == 1 and text.strip()) or not whole:
                break  # text beside elements has no place in JSON
            if tag == f"/{self.end}" and len(opened) == 1:
                emit("}")
                return True
            if not tag.startswith("/") and tag.strip() and len(opened) <= MAX_DEPTH:
                opened.append(_Element(tag, _schema_in(opened[-1], tag)))
            elif len(opened) > 1 and tag == f"/{opened[-1].name}":
                done = opened.pop()
                opened[-1].children.append((done.name, _element(done)))
            else:
                break
            if len(opened) == 1:
                emit(f"{comma}{_members_as_json(opened[0].children)[1:-1]}")
                opened[0].children, comma, raw = [], ", ", []
        emit("".join(raw))
        return False


def _schema_in(parent: _Element, name: str) -> Mapping[str, Any]:
    """The schema of a child; of an array that of its items."""
    known = members_of(parent.schema.get("properties")).get(name)
    return members_of(parent.schema.get("items") if known is None else known)


def _element(element: _Element) -> str:
    """The JSON of an element."""
    types = types_of({"properties": {"": element.schema}}, "")
    if not element.children:
        if not element.text.strip() and types and "string" not in types:
            return "[]" if "array" in types else "{}"
        return json_of(element.text, types)
    children = element.children
    if "array" in types if types else all(name == "item" for name, _ in children):
        return f"[{', '.join(value for _, value in children)}]"
    return _members_as_json(children)


def _members_as_json(children: Sequence[tuple[str, str]]) -> str:
    """The JSON of an object; members of one name are one list."""
    named: dict[str, list[str]] = {}
    for name, value in children:
        named.setdefault(name, []).append(value)
    said = {name: values[0] if len(values) == 1 else f"[{', '.join(values)}]" for name, values in named.items()}
    return "{" + ", ".join(f'"{quote(name)}": {value}' for name, value in said.items()) + "}"
