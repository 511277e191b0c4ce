"""Readers of calls whose arguments are neither JSON nor flat XML: literals, and elements within elements.

    LiteralForm   f(city='Paris', days=3), g()                              Llama 4
                  call:f{city:<|"|>Paris<|"|>,days:3}                       Gemma 4
    ElementForm   <invoke name="f"> <near> <item>Paris</item> </near> …     MiniMax M3, with a mark before each tag

The name goes out at once, and the arguments when their call has ended: as JSON, or as written where they can't be read.
See calls.py for steps.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from service.features.models.markup.calls import (
    MAX_HEAD,
    MAX_NAME,
    PYTHON,
    TAG,
    TEXT,
    Awaits,
    Emit,
    ObjectScan,
    Schemas,
    Steps,
    TextMark,
    emit_name,
    inside_of,
    is_object,
    json_of,
    members_of,
    quote,
    schema_in,
    types_of,
    until,
)

MAX_DEPTH = 64
"""How many elements may stand in one another."""

# --- literals ---------------------------------------------------------------------------------------------------------

_HALF = re.compile("[\ud800-\udfff]")
"""Matches half of a pair of surrogates, which is no character."""

QUOTE = "\udfff"
"""Stands in the place of a mark that quotes: no text has it."""

_PIECE = re.compile(
    rf"{QUOTE}(?P<quoted>[^{QUOTE}]*){QUOTE}|(?P<word>[^,:\[\]{{}}{QUOTE}]+)(?P<colon>:)?|(?P<sign>.)", re.DOTALL
)
"""Matches a string, a word, perhaps as a key, or a sign of a literal with marks."""


class LiteralForm(msgspec.Struct, frozen=True):
    """A call with arguments as literals. `head` finds the name and the bracket behind it; `begun` is what may become
    these. A string stands between two marks `quote`, and one of the marks `last` ends the call. Without these, it is a
    call of Python's, which ends with its bracket.
    """

    head: re.Pattern[str]
    begun: re.Pattern[str]
    quote: str = ""
    last: frozenset[str] = frozenset()

    def steps(self, schemas: Schemas, emit: Emit) -> Steps:
        """The steps of reading a call; `schemas` type words that stand without quotes."""
        held, marks = "", Awaits(self.last | {self.quote} - {""})
        while (found := self.head.match(held, 0, MAX_HEAD)) is None:
            possible = len(held) <= MAX_HEAD and self.begun.fullmatch(held)
            piece = (yield marks) if possible else None
            if piece is None or isinstance(piece, TextMark):
                return False, ""
            held += piece
        if not emit_name(found["name"], emit):
            return False, ""
        parts, scan = [held[found.end() :]], ObjectScan(1, PYTHON)
        while (end := None if self.quote else scan.end(parts[-1])) is None:
            piece = yield marks
            if piece is None or (isinstance(piece, TextMark) and piece != self.quote):
                break
            parts.append(QUOTE if isinstance(piece, TextMark) else piece)
        left = "" if end is None else parts[-1][end:]
        text = "".join(parts).removesuffix(left)
        closed = text.rstrip().removesuffix(")") + "}" if found[0].endswith("(") else text
        made = (
            _arguments_in_marks(closed, members_of(schemas.get(found["name"])))
            if self.quote
            else _arguments_of_python(text)
        )
        emit(text.replace(QUOTE, self.quote) if made is None else made)
        return made is not None, left


def _arguments_of_python(text: str) -> str | None:
    """The JSON of the arguments of a call of Python's, with the bracket behind them; None where they can't be read."""
    try:
        call = ast.parse(f"f({text}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            return None
        values = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        made = _HALF.sub("\ufffd", json.dumps(values, ensure_ascii=False))
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return made if is_object(made) else None


def _arguments_in_marks(text: str, schema: Mapping[str, Any]) -> str | None:
    """The JSON of arguments whose strings stand between marks, with the bracket behind them; None as above."""
    out, depth, key = list[str](), 0, ""
    for found in _PIECE.finditer(text):
        word, sign = (found["word"] or "").strip(), found["sign"] or ""
        if found["colon"]:
            key = word if depth == 0 else key
            out.append(f'"{quote(word)}": ')
        elif found["quoted"] is not None:
            out.append(f'"{quote(found["quoted"])}"')
        elif word:
            out.append(json_of(word, types_of(schema, schema_in(schema, schema, key)) if depth == 0 else None))
        depth += (sign in ("[", "{")) - (sign in ("]", "}"))
        out.append(", " if sign == "," else sign)
    made = "{" + "".join(out)
    return made if is_object(made) else None


# --- elements within elements -----------------------------------------------------------------------------------------


class _Element(msgspec.Struct):
    """An element that was opened, its schema, the text in it, and its children by name, as JSON."""

    name: str
    schema: Any
    text: str = ""
    children: list[tuple[str, str]] = []


class ElementForm(msgspec.Struct, frozen=True):
    """A call whose parameters are elements, of which each may hold others. `tag` begins a tag, `end` is the call's own
    end, and `last` are other marks that end it.
    """

    tag: str
    end: str
    last: tuple[str, ...] = ()

    def steps(self, schemas: Schemas, emit: Emit) -> Steps:
        """The steps of reading a call; the tool's schema types its parameters."""
        name, mark = yield from until(frozenset({">"}), MAX_NAME)
        found = TAG.fullmatch(name) if mark else None
        if found is None or not emit_name(inside_of(found), emit):
            return False, ""
        text, mark = yield from until(frozenset({self.end, *self.last}))
        made = self._arguments(text, members_of(schemas.get(inside_of(found).strip()))) if mark == self.end else None
        emit(text if made is None else made)
        return made is not None, ""

    def _arguments(self, text: str, schema: Mapping[str, Any]) -> str | None:
        """The JSON of parameters; None where tags don't match, or text stands beside elements."""
        said, *tags = re.split(f"{re.escape(self.tag)}([^>]*)>", text)
        opened = [_Element("", schema, said)]
        for name, behind in zip(tags[::2], tags[1::2], strict=True):
            if not name.startswith("/") and name.strip() and len(opened) <= MAX_DEPTH:
                opened.append(_Element(name, schema_in(schema, opened[-1].schema, name), behind))
            elif len(opened) > 1 and name == f"/{opened[-1].name}":
                done = opened.pop()
                if done.children and done.text.strip():
                    return None
                opened[-1].children.append((done.name, _element(schema, done)))
                opened[-1].text += behind
            else:
                return None
        (root, *unclosed) = opened
        return None if unclosed or root.text.strip() else _members_as_json(root.children)


def _element(root: Mapping[str, Any], element: _Element) -> str:
    """The JSON of an element."""
    types = types_of(root, element.schema)
    if not element.children:
        if not element.text.strip() and types and "string" not in types:
            return "[]" if "array" in types else "{}"
        return json_of(element.text, types or TEXT)
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
