"""A value for a JSON schema: of the user's words where they fit, made up where they don't.

It follows what an engine's grammar can hold: types, properties, items, choices, references, bounds, lengths, formats
and patterns. A keyword that it doesn't know is passed over; the service validates what an engine says.
"""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from service.engine.demo.arguments import ITEMS, TEXT_CHARS, VALUES, Missing, Words, found, saying
from service.engine.demo.numbers import Span
from service.engine.demo.shapes import Boolean, Number, OneOf, Text
from service.engine.demo.texts import matching

DEPTH = 64
"""How deep values are nested at most."""

GENEROUS = 8
"""So deep, values are made that nobody demands; further down only what must be."""

SECTION = "# Response Formats"
"""The heading under which the prompt holds the schema."""

FILLERS = 200
"""How many properties that no schema names are made up at most."""

_FORMATS = {
    "date": "2025-01-01",
    "date-time": "2025-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "ada@example.org",
    "idn-email": "ada@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uri-reference": "https://example.org/",
    "iri": "https://example.org/",
    "uri-template": "https://example.org/{id}",
    "uuid": "6fa459ea-ee8a-4ca4-894e-db77e160355e",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
    "regex": "a",
}
_COMBINED = ("anyOf", "oneOf")
_OF_OBJECTS = ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties")
_OF_ARRAYS = ("items", "prefixItems", "minItems", "maxItems")
_OF_STRINGS = ("pattern", "format", "minLength", "maxLength")
_OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

Part = Mapping[str, Any]


@lru_cache(maxsize=32)
def response_schema(developer: str) -> Part | None:
    """The schema that the developer message demands of the final answer, or None where it demands none."""
    _, section, rest = developer.rpartition(SECTION)
    lines = [line for line in rest.splitlines() if line.startswith("{")] if section else []
    try:
        return cast(Part, json.loads(lines[0])) if lines else None
    except (ValueError, RecursionError):
        return {"type": "object"}


def answer_for(schema: object, words: str, answer: str) -> object:
    """A value that says `answer` where a text is free, picking other values out of the user's words."""
    return _Maker(schema, saying(answer, words)).whole()


def arguments_for(schema: object, words: str) -> object:
    """Arguments for a call, picked out of the user's words."""
    return _Maker(schema, Words(words)).whole()


class _Endless(Exception):
    """A value would have no end."""


class _Maker:
    """A schema's root, which references start from, and the words that values are made of."""

    def __init__(self, root: object, words: Words) -> None:
        self._root = root
        self._words = words
        self._giving_up = False

    def whole(self) -> Any:
        """A value of the whole schema. One that can have no end has nulls in it.

        A schema that nobody holds may be any JSON: to one whose keywords make no sense, an empty object is the answer.
        """
        try:
            try:
                return self._value(self._root, "", DEPTH)
            except _Endless:
                self._giving_up, self._words.values_left = True, VALUES
                return self._value(self._root, "", GENEROUS)
        except (_Endless, TypeError, ValueError, ArithmeticError, AttributeError, LookupError):
            return {}

    def _value(self, schema: object, name: str, depth: int) -> Any:
        """A value of a part of the schema. Raises _Endless where the part demands itself."""
        self._words.values_left -= 1
        if depth < 0 or self._words.values_left < -VALUES:
            if self._giving_up:
                return None
            raise _Endless
        if not isinstance(schema, dict):
            return self._free(name)
        part = self._whole(cast(Part, schema))
        if "const" in part:
            return part["const"]
        if "enum" in part:
            return self._chosen(part["enum"], name)
        for keyword in _COMBINED:
            if part.get(keyword):
                base = {key: value for key, value in part.items() if key not in _COMBINED}
                return self._first([{**base, **self._whole(option)} for option in part[keyword]], name, depth)
        kinds: Any = part.get("type", _kind(part))
        if isinstance(kinds, list):
            return self._first([{**part, "type": kind} for kind in cast(list[Any], kinds)], name, depth)
        match kinds:
            case "object":
                return self._object(part, depth)
            case "array":
                return self._array(part, name, depth)
            case "string":
                return self._string(part, name)
            case "number" | "integer":
                return self._number(part, whole=kinds == "integer")
            case "boolean":
                value = found(Boolean(), name, self._words)
                return True if isinstance(value, Missing) else value
            case "null":
                return None
            case _:
                return self._free(name)

    def _whole(self, part: Any) -> Part:
        """A part with what it refers to, and all that must hold of it at once. Raises _Endless."""
        if not isinstance(part, dict):
            return {}
        whole = dict(cast(Part, part))
        for _ in range(DEPTH):
            reference = whole.pop("$ref", None)
            others = [self._resolve(reference)] if isinstance(reference, str) else [*whole.pop("allOf", ())]
            if not others:
                return whole
            for other in others:
                whole = _both(whole, cast(Part, other) if isinstance(other, dict) else {})
        raise _Endless

    def _first(self, options: Sequence[Part], name: str, depth: int) -> Any:
        """A value of the first option that has an end: simple ones first, then null."""
        for option in sorted(options, key=_order):
            try:
                return self._value(option, name, depth - 1)
            except _Endless:
                continue
        raise _Endless

    def _generous(self, depth: int) -> bool:
        return depth > DEPTH - GENEROUS and self._words.values_left > 0

    def _object(self, part: Part, depth: int) -> dict[str, Any]:
        properties: Mapping[str, Any] = part.get("properties") or {}
        required = set(cast(list[str], part.get("required") or ()))
        least, most = int(part.get("minProperties", 0)), int(part.get("maxProperties", FILLERS))
        spare = most - len(required)
        wanted = set(required)
        for inner in properties:
            if inner not in wanted and spare > 0 and self._generous(depth) and self._words.mentions(inner):
                wanted.add(inner)
                spare -= 1
        for inner in properties:
            if len(wanted) < least:
                wanted.add(inner)
        unknown = [each for each in required if each not in properties]
        names = [*(each for each in properties if each in wanted), *sorted(unknown)]
        others: Any = part.get("additionalProperties", True)
        value = {each: self._value(properties.get(each, others), each, depth - 1) for each in names}
        if not properties and not least and depth == DEPTH and self._words.text and most:
            least = 1
        for number in range(FILLERS):
            named = None if len(value) >= least else self._unnamed(part, number)
            if named is None:
                break
            value.setdefault(named[0], self._value(named[1], "", depth - 1))
        return value

    def _unnamed(self, part: Part, number: int) -> tuple[str, Any] | None:
        """A name that a member may have which nobody declared, and its schema; None where there may be none."""
        for pattern, inner in part.get("patternProperties", {}).items():
            return matching(pattern), inner
        others: Any = part.get("additionalProperties", True)
        if "propertyNames" in part:
            return str(self._value({"type": "string", **part["propertyNames"]}, "", 0)), others
        return None if others is False else (f"key{number}" if number else "answer", others)

    def _array(self, part: Part, name: str, depth: int) -> list[Any]:
        first: list[Any] = part.get("prefixItems") or []
        rest: Any = part.get("items", True)
        least = int(part.get("minItems", 0))
        usual = max(least, len(first), 1 if "items" in part and rest is not False and self._generous(depth) else 0)
        size = min(usual, int(part.get("maxItems", usual)))
        value = [self._value(each, name, depth - 1) for each in first[:size]]
        while len(value) < size:
            value.append(self._value(rest, name, depth - 1))
        more = min(int(part.get("maxItems", ITEMS)), ITEMS)
        while len(value) < more and "items" in part and self._more(rest):
            value.append(self._value(rest, name, depth - 1))
        return value

    def _more(self, item: Any) -> bool:
        """Whether the words hold more names or numbers for a list."""
        kind = cast(Part, item).get("type") if isinstance(item, dict) else None
        simple = kind in ("string", "number", "integer") and not any(key in item for key in ("enum", *_OF_STRINGS))
        return simple and bool(self._words.names or self._words.quoted if kind == "string" else self._words.numbers)

    def _string(self, part: Part, name: str) -> str:
        if "pattern" in part:
            return matching(part["pattern"], self._words.text)
        if part.get("format") in _FORMATS:
            return _FORMATS[part["format"]]
        least, most = int(part.get("minLength", 0)), int(part.get("maxLength", VALUES))
        said = found(Text(), name, self._words)
        text = str(self._free(name)) if isinstance(said, Missing) else str(said)
        if not least <= len(text) <= most:
            text = (text[:most] or "a").ljust(least, ".")[:most] if most else ""
        return text

    def _number(self, part: Part, *, whole: bool) -> float:
        span = Span.of(part, whole=whole)
        for said in list(self._words.numbers):
            if said in span:
                self._words.take_number(Number(said, whole))
                return int(said) if whole else said
        return span.number()

    def _chosen(self, values: Sequence[Any], name: str) -> Any:
        value = found(OneOf(tuple(values)), name, self._words)
        return values[0] if isinstance(value, Missing) and values else value

    def _free(self, name: str) -> str:
        return self._words.text[:TEXT_CHARS] or name or "demo"

    def _resolve(self, reference: str) -> object:
        """What `#/$defs/name` points to; nothing in particular where it points nowhere."""
        place = self._root
        for step in reference.removeprefix("#").strip("/").split("/") if reference != "#" else []:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list):
                items = cast(list[object], place)
                place = items[int(key)] if key.isdigit() and int(key) < len(items) else None
            else:
                place = cast(dict[str, object], place).get(key) if isinstance(place, dict) else None
        return place


def _both(one: Part, other: Part) -> dict[str, Any]:
    """What holds where both parts do; of what only one can say, the first."""
    both = {**other, **one}
    for key in ("properties", "$defs"):
        if key in one and key in other:
            both[key] = {**other[key], **one[key]}
    if "required" in one and "required" in other:
        both["required"] = [*one["required"], *(each for each in other["required"] if each not in one["required"])]
    if "allOf" in other:
        both["allOf"] = [*one.get("allOf", ()), *other["allOf"]]
    return both


def _order(option: Part) -> int:
    """Which options are taken first."""
    if option.get("type") in ("string", "number", "integer", "boolean") or "enum" in option or "const" in option:
        return 0
    return 1 if option.get("type") == "null" else 2


def _kind(part: Part) -> str | None:
    """The type that a part's other keywords are about."""
    kinds = {"object": _OF_OBJECTS, "array": _OF_ARRAYS, "string": _OF_STRINGS, "number": _OF_NUMBERS}
    return next((kind for kind, keywords in kinds.items() if any(key in part for key in keywords)), None)
