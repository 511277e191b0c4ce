"""A value for a JSON schema: of the user's words where they fit, made up where they don't.

It follows all that an engine's grammar can enforce: types, properties, items, choices, references, bounds, lengths,
formats and patterns. It skips unknown keywords; the service validates an engine's output.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from service.engine.demo.patterns import matching
from service.engine.demo.words import TEXT_CHARS, Words
from service.errors import InvalidRequest
from service.grammar.checks import is_valid
from service.grammar.schema_values import KINDS, References

DEPTH = 64
"""How deep values are nested at most."""

GENEROUS = 8
"""So deep, optional values are made too; further down only required ones."""

VALUES = 200
"""After so many values, nested ones included, only required ones are made; after twice as many, everything is null, and
lists end. All of them are made at once, in some milliseconds."""

MAX_CHARS = 2_000
"""How long a text is at most that has to be long."""

ITEMS = 16
"""The most items that a list gets from the words."""

FILLERS = 200
"""How many properties that no schema names are made up at most."""

SECTION = "# Response Formats"
"""The heading of the schema in the prompt."""

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
_MISSING = object()
"""In place of a value that is not in the words."""

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


def answer_for(schema: object, words: str, answer: str, *, introduces: bool = False) -> object:
    """A value that says `answer` where a text is free, picking other values out of the user's words.

    An answer that only `introduces` the engine is worth less than the user's words. So where there are several values,
    all are picked out of the words then, for lists first.
    """
    picks = introduces and _members(schema) > 1
    return _Maker(schema, Words(words, None if picks else answer), lists_first=picks).value()


def arguments_for(schema: object, words: str) -> Any:
    """Arguments for a call, picked out of the user's words."""
    return _Maker(schema, Words(words)).value()


def command_for(words: str) -> dict[str, Any]:
    """The arguments of a call that runs the command which the user's words have, or one that shows where it is."""
    return {"cmd": ["bash", "-lc", Words(words).take_text("command") or "pwd"]}


class _Endless(Exception):
    """A value would have no end."""


class _Maker:
    """A schema's root, which references start from, and the words that values are made of."""

    def __init__(self, root: object, words: Words, *, lists_first: bool = False) -> None:
        self._root = root
        self._lists_first = lists_first
        self._references = References(root, "")
        self._words = words
        self._values_left = VALUES
        self._giving_up = False

    def value(self) -> Any:
        """A value of the whole schema. One that can have no end has nulls in it.

        A schema that is not enforced may be any JSON: where its keywords make no sense, the value is an empty object.
        """
        try:
            try:
                return self._value(self._root, "", DEPTH)
            except _Endless:
                self._giving_up, self._values_left = True, VALUES
                return self._value(self._root, "", GENEROUS)
        except (_Endless, TypeError, ValueError, ArithmeticError, AttributeError, LookupError):
            return {}

    def _value(self, schema: object, name: str, depth: int, *, said: bool = False) -> Any:
        """A value of a part of the schema; with `said` one that is in the words, or _MISSING.

        Raises _Endless where the part demands itself.
        """
        self._values_left -= 1
        if depth < 0 or self._values_left < -VALUES:
            if self._giving_up:
                return None
            raise _Endless
        part = self._merged(schema)
        choices: Any = [part["const"]] if "const" in part else part.get("enum")
        if choices:
            return next(self._named(choices), _MISSING if said else choices[0])
        kind: Any = _kind(part)
        for keyword in _COMBINED:
            if part.get(keyword):
                base = {key: value for key, value in part.items() if key not in _COMBINED}
                return self._first([{**base, **self._merged(each)} for each in part[keyword]], name, depth, said=said)
        if isinstance(kind, list):
            options = [{**part, "type": each} for each in cast(list[Any], kind)]
            return self._first(options, name, depth, said=said)
        match kind:
            case "object":
                return _MISSING if said and not part.get("properties") else self._object(part, depth)
            case "array":
                return self._array(part, name, depth, said=said)
            case "string":
                return self._string(part, name, said=said)
            case "number" | "integer":
                return self._number(part, whole=kind == "integer", said=said)
            case "boolean":
                on = self._words.switch(name)
                return on if on is not None else _MISSING if said else True
            case _:
                return _MISSING if said else None if kind == "null" else self._free(name)

    def _merged(self, part: Any) -> Part:
        """A part with what it refers to, and all that applies to it at once. Raises _Endless."""
        if not isinstance(part, dict):
            return {}
        merged = dict(cast(Part, part))
        for _ in range(DEPTH):
            reference = merged.pop("$ref", None)
            others = [self._target(reference)] if isinstance(reference, str) else [*merged.pop("allOf", ())]
            if not others:
                return merged
            for other in others:
                merged = _both(merged, cast(Part, other) if isinstance(other, dict) else {})
        raise _Endless

    def _target(self, reference: str) -> object:
        """The target of a reference; None if it has none."""
        try:
            return self._references.target(reference, "")
        except InvalidRequest:
            return None

    def _first(self, options: Sequence[Part], name: str, depth: int, *, said: bool) -> Any:
        """A value of the first option that has an end. Simple ones come before others.

        In a call, one that is in the words comes before all, and null before what is made up.
        """
        for option in () if self._words.answering and not said else options:
            if _simple(option) or (_kind(option) == "array" and _simple(option.get("items"))):
                found = self._value(option, name, depth - 1, said=True)
                if found is not _MISSING:
                    return found
        if said:
            return _MISSING
        null = 1 if self._words.answering else -1
        for option in sorted(
            options, key=lambda each: null if each.get("type") == "null" else 0 if _simple(each) else 2
        ):
            try:
                return self._value(option, name, depth - 1)
            except _Endless:
                continue
        raise _Endless

    def _named(self, values: Sequence[Any]) -> Iterator[Any]:
        return (value for value in values if value is not None and self._words.mentions(value))

    @property
    def _spent(self) -> bool:
        """Whether nothing more is made, and no value without an end is looked for any more."""
        return self._giving_up and self._values_left < -VALUES

    def _offers(self, schema: object) -> bool:
        """Whether a choice is to be made that a call makes even where its name is not mentioned."""
        return not self._words.answering and "enum" in self._merged(schema)

    def _generous(self, depth: int) -> bool:
        return depth > DEPTH - GENEROUS and self._values_left > 0

    def _object(self, part: Part, depth: int) -> dict[str, Any]:
        properties: Mapping[str, Any] = part.get("properties") or {}
        required = set(cast(list[str], part.get("required") or ()))
        unknown = sorted(required - set(properties))
        least, most = int(part.get("minProperties", 0)), int(part.get("maxProperties", FILLERS))
        spare = most - len(required)
        value: dict[str, Any] = {}
        for name, inner in sorted(properties.items(), key=self._turn):
            if name in required:
                value[name] = self._value(inner, name, depth - 1)
            elif spare > 0 and self._generous(depth) and (self._words.mentions(name) or self._offers(inner)):
                found = self._value(inner, name, depth - 1, said=not self._words.answering)
                if found is not _MISSING:
                    value[name] = found
                    spare -= 1
        for name in properties:
            if name not in value and len(value) + len(unknown) < least:
                value[name] = self._value(properties[name], name, depth - 1)
        value = {name: value[name] for name in properties if name in value}
        others: Any = part.get("additionalProperties", True)
        value |= {name: self._value(others, name, depth - 1) for name in unknown}
        if not properties and not least and depth == DEPTH and self._words.text and most:
            least = 1
        for number in range(FILLERS):
            named = None if len(value) >= least else self._unnamed(part, number)
            if named is None:
                break
            value.setdefault(named[0], self._value(named[1], "", depth - 1))
        return value

    def _turn(self, member: tuple[str, Any]) -> bool:
        """Whether a property has to wait for lists to get their words."""
        return self._lists_first and _kind(self._merged(member[1])) != "array"

    def _unnamed(self, part: Part, number: int) -> tuple[str, Any] | None:
        """A name that an undeclared member may have, and its schema; None where there may be none."""
        for pattern, inner in part.get("patternProperties", {}).items():
            return matching(pattern), inner
        others: Any = part.get("additionalProperties", True)
        if "propertyNames" in part:
            return str(self._value({"type": "string", **part["propertyNames"]}, "", 0)), others
        return None if others is False else (f"key{number}" if number else "answer", others)

    def _array(self, part: Part, name: str, depth: int, *, said: bool) -> Any:
        first: list[Any] = part.get("prefixItems") or []
        rest: Any = part.get("items", True)
        filled = "items" in part and rest is not False and self._generous(depth)
        least = int(part.get("minItems", 0))
        most = int(part.get("maxItems", max(least, len(first), ITEMS)))
        value = [self._value(each, name, depth - 1) for each in first[:most]]
        if filled:
            value += islice(self._items(rest, name, depth - 1), max(0, min(most, ITEMS) - len(value)))
        if said and not value:
            return _MISSING
        if unique := bool(part.get("uniqueItems")):
            value = _distinct(value)
        while len(value) < min(most, max(least, int(filled))) and not self._spent:
            made = self._value(rest, name, depth - 1)
            value.append(self._unlike(value, made, rest) if unique else made)
        return value

    def _unlike(self, others: Sequence[Any], made: Any, schema: Any) -> Any:
        """A value of a schema that is none of the others, if one is easily made of `made`."""
        part = self._merged(schema)
        if made not in others or not _simple(part):
            return made
        choices: Sequence[Any] = part.get("enum", ())
        choices = [*choices[len(others) :], *choices[: len(others)]]  # as many have been taken, mostly the first
        if isinstance(made, bool):
            choices = (True, False)
        elif isinstance(made, (int, float)) and not choices:
            step = part.get("multipleOf") or 1
            choices = [made + sign * step * place for place in (len(others), 1) for sign in (1, -1)]
        elif isinstance(made, str) and not choices:
            choices = [f"{made} {len(others) + 1}", str(len(others) + 1)]
        return next((each for each in choices if each not in others and is_valid(part, each)), made)

    def _items(self, schema: Any, name: str, depth: int) -> Iterator[Any]:
        """All items of a list that are in the words: of most kinds, that is one."""
        item = self._merged(schema)
        if "enum" in item:
            yield from self._named(item["enum"])
            return
        while (found := self._value(item, name, depth, said=True)) is not _MISSING:
            yield found
            any_text = item.get("type") == "string" and KINDS["string"].isdisjoint(item)
            if not (item.get("type") in ("number", "integer") or (any_text and self._words.more_text)):
                return

    def _string(self, part: Part, name: str, *, said: bool) -> Any:
        if "pattern" in part:
            return matching(part["pattern"], self._words.text)
        if part.get("format") in _FORMATS:
            return _FORMATS[part["format"]]
        text = self._words.take_text(name)
        if text is None and said:
            return _MISSING
        text = text or self._free(name)
        least, most = int(part.get("minLength", 0)), int(part.get("maxLength", MAX_CHARS))
        least, most = min(least, MAX_CHARS), min(most, MAX_CHARS)
        if not least <= len(text) <= most:
            text = (text[:most] or "a").ljust(least, ".")[:most] if most else ""
        return text

    def _number(self, part: Part, *, whole: bool, said: bool) -> Any:
        low, high = part.get("minimum", -math.inf), part.get("maximum", math.inf)
        over, under = part.get("exclusiveMinimum", -math.inf), part.get("exclusiveMaximum", math.inf)
        step = part.get("multipleOf") or 0

        def fits(number: float) -> bool:
            inside = low <= number <= high and over < number < under and math.isfinite(number)
            return inside and not (whole and number % 1) and not (step and number % step)

        taken = self._words.take_number(fits)
        if taken is not None:
            return int(taken) if whole else taken
        return _MISSING if said else next(filter(fits, _easy(max(low, over), min(high, under), step, whole=whole)), 0)

    def _free(self, name: str) -> str:
        return self._words.text[:TEXT_CHARS] or name or "demo"


def _both(one: Part, other: Part) -> dict[str, Any]:
    """A part for which both apply; where only one keyword can stay, the first."""
    both = {**other, **one}
    if "properties" in one and "properties" in other:
        both["properties"] = {**other["properties"], **one["properties"]}
    for key in ("required", "allOf"):
        if key in other:
            both[key] = [*one.get(key, ()), *other[key]]
    return both


def _distinct(values: Sequence[Any]) -> list[Any]:
    """Those of some values that are none of the ones before."""
    return [value for place, value in enumerate(values) if value not in values[:place]]


def _kind(part: Part) -> str | None:
    """The type of a part, or that which its other keywords are about."""
    return part.get("type", next((kind for kind, keywords in KINDS.items() if not keywords.isdisjoint(part)), None))


def _members(schema: object) -> int:
    """How many properties an object of a schema has."""
    properties: Any = cast(Part, schema).get("properties") if isinstance(schema, dict) else None
    return len(cast(Part, properties)) if isinstance(properties, dict) else 0


def _simple(part: Any) -> bool:
    """Whether the values of a part have no parts."""
    return isinstance(part, dict) and (
        "enum" in part or "const" in part or cast(Part, part).get("type") in ("string", "number", "integer", "boolean")
    )


def _easy(low: float, high: float, step: float, *, whole: bool) -> Iterator[float]:
    """Numbers that are easily written, some of which may lie between two bounds; with a `step` its multiples."""
    if step:
        multiple = math.ceil(low / step) * step if low > -math.inf else step
        yield from (multiple, multiple + step)
        yield math.floor(high / step) * step if high < math.inf else 0
        return
    if whole:
        low, high = (
            bound if math.isinf(bound) else round_(bound) for bound, round_ in ((low, math.ceil), (high, math.floor))
        )
        yield max(low, min(1, high))
    yield from (1, 0, low, high, low + 1, high - 1, (low + high) / 2)
