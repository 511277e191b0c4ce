"""A function's TypeScript signature in the prompt, read back into a JSON schema of its arguments.

The renderer's TypeScript is not quite TypeScript (a description's second line stands bare, `"a" | "b"[]` is
an array of both), so the reader is tolerant: what it can't read may be anything, and it never raises.
"""

import json
import re
from typing import Any

DEPTH = 16
"""How deep a type is read; what is nested further may be anything."""

TOKENS = 20_000
"""How much of one signature is read, in TypeScript tokens."""

Schema = dict[str, Any]

_NAMED: dict[str, Schema] = {
    **{name: {"type": name} for name in ("string", "number", "boolean", "null", "object")},
    "any": {},
    "true": {"enum": [True]},
    "false": {"enum": [False]},
}
_OBJECT_DESCRIPTION = re.compile(r": +//[^\n]*\n(?:(?! *\{)[^\n]*\n){0,50}(?= *\{)")
_TOKEN = re.compile(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"|[\w$-]+(?:\.\d+)?|[^\s\w]')


def read_signature(text: str) -> Schema:
    """The schema of the arguments of `(_: {…}) => any`; without arguments, that of an empty object."""
    return _Reader(text).signature()


class _Reader:
    """A cursor over one signature's tokens."""

    def __init__(self, text: str) -> None:
        found = (match[0] for match in _TOKEN.finditer(_OBJECT_DESCRIPTION.sub(": ", text)))
        self._tokens = [token for _, token in zip(range(TOKENS), found, strict=False) if token[:2] != "//"]
        self._place = 0

    def signature(self) -> Schema:
        while self._next() and self._next() != "{":
            self._place += 1
        schema = self._type(DEPTH)
        return schema if "properties" in schema else _object({}, [])

    def _next(self, ahead: int = 0) -> str:
        """The token `ahead` of the cursor; empty past the end."""
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ""

    def _take(self, token: str) -> bool:
        if self._next() != token:
            return False
        self._place += 1
        return True

    def _type(self, depth: int) -> Schema:
        self._take("|")
        options = [self._single(depth)]
        while self._take("|"):
            options.append(self._single(depth))
        return _union(options)

    def _single(self, depth: int) -> Schema:
        token = self._next()
        if depth == 0 or token in ("", ",", ";", "}", ")", "]", ">"):
            return {}
        self._place += 1
        if token == "{":
            schema = self._record(depth)
        elif token == "(":
            schema = self._type(depth - 1)
            self._take(")")
        elif token == "Array" and self._take("<"):
            schema = _array(self._type(depth - 1))
            self._take(">")
        else:
            schema = _NAMED.get(token) or _literal(token)
        while self._next() == "[" and self._next(1) == "]":
            self._place += 2
            schema = _array(schema)
        return schema

    def _record(self, depth: int) -> Schema:
        properties: Schema = {}
        required: list[str] = []
        while self._next() and not self._take("}"):
            demanded = self._next(1) == ":"
            optional = self._next(1) == "?" and self._next(2) == ":"
            name = self._next().strip('"')
            self._place += 1
            if not (demanded or optional):
                continue  # a comma, or a description's second line
            self._place += 1 if demanded else 2
            properties[name] = self._type(depth - 1)
            required += [name] if demanded else []
        return _object(properties, required)


def _object(properties: Schema, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def _literal(token: str) -> Schema:
    """A literal of the signature; a name that nobody defined can be anything."""
    try:
        value: object = json.loads(token)
    except ValueError:
        return {}
    return {"enum": [value]} if isinstance(value, str | int | float) else {}


def _union(options: list[Schema]) -> Schema:
    """One schema for `a | b`. Literals become one choice.

    Brackets are rendered without parentheses: `"a" | "b"[]` and `string | null[]` are arrays of the whole union.
    """
    *others, last = options
    if not others:
        return last
    innermost = last
    while innermost.get("type") == "array":
        innermost = innermost["items"]
    if last != innermost and (innermost == _NAMED["null"] or all("enum" in each for each in [*others, innermost])):
        return _array(_union([*others, last["items"]]))
    literals = [value for option in options for value in option.get("enum", ())]
    choices = [{"enum": literals}] if literals else []
    choices += [option for option in options if "enum" not in option]
    return choices[0] if len(choices) == 1 else {"anyOf": choices}
