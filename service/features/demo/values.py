"""A value for a JSON schema: of the user's words where they fit, made up where they don't.

It follows all that an enforced schema may have (grammar/schemas.py), and of any other one what it has in common with
these. Each name, number or quotation of the words is used once, in order, so that two cities go to two fields. The
patterns run over users' text: each is linear.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from service.errors import InvalidRequest
from service.features.demo.patterns import matching
from service.grammar.checks import is_valid
from service.grammar.schema_values import KINDS, References

DEPTH = 64
"""The deepest nesting of values."""

GENEROUS = 8
"""The depth down to which optional values are made, too."""

VALUES = 400
"""The most values that are made, nested ones included. All of them are made at once, in some milliseconds."""

TEXT_CHARS, MAX_CHARS = 400, 2000
"""The longest string made of the words, and the longest one made because it has to be long."""

ITEMS = 16
"""The most items that a list gets from the words."""

SECTION = "# Response Formats"
"""The heading of the schema in the prompt."""

_FORMATS = {
    "date": "2025-01-01",
    "date-time": "2025-01-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "P1D",
    "email": "ada@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uri-reference": "https://example.org/",
    "uri-template": "https://example.org/{id}",
    "uuid": "6fa459ea-ee8a-4ca4-894e-db77e160355e",
    "json-pointer": "/a",
    "relative-json-pointer": "0",
}
_SCALARS = ("string", "number", "integer", "boolean")

_QUOTED = re.compile(r"\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”|`([^`\n]{1,400})`")
_CAPITALISED = re.compile(r"\b[A-Z][\w'-]{0,40}(?: [A-Z][\w'-]{0,40}){0,3}")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?!\w)")
_AFTER = re.compile(r"\b(?:in|for|at|of|to|from|on|about|named|called) (?:an? |the )?([\w'-]{1,40})")
_WORD = re.compile(r"[^\W_]+")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,100}\w|https?://[^\s\"'<>]{1,300}")
_DAY = re.compile(r"\d{4}-\d\d-\d\d|\b(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|[Tt]oday|[Tt]omorrow)\b")
_NEGATION = re.compile(r"\b(?:not?|don't|off|disabled?|false|without|never)\b", re.IGNORECASE)
_SPECIAL: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("email", "mail", "to", "recipient", "url", "link"), _ADDRESS),
    **dict.fromkeys(("date", "day", "when", "deadline"), _DAY),
}
"""The patterns of what fields of some names hold."""

_ALL_OF_IT = frozenset({"query", "q", "question", "text", "message", "prompt", "content", "input", "body", "search"})
"""The names of fields that hold all of the words."""

_OPENERS = frozenset(
    re.findall(
        r"\S+",
        "a an the and but or i i'm what what's when where who why how is are was do does did can could will should "
        "please use call get give show tell find look check search make let hello hi thanks ok if then my say run send "
        "set add compute calculate book create convert translate fetch lookup ask answer also now plan write",
    )
)
"""The words that have a capital letter only because they open a sentence."""

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
    """A value that is picked out of the words; one with a single string in it, or a free one, says the `answer`."""
    properties: Any = cast(Part, schema).get("properties") if isinstance(schema, dict) else None
    several = isinstance(properties, dict) and len(cast(Part, properties)) > 1
    return _Maker(cast(object, schema), UserWords(words, None if several else answer)).value()


def arguments_for(schema: object, words: str) -> Any:
    """Arguments for a call, picked out of the user's words."""
    return _Maker(schema, UserWords(words)).value()


class UserWords:
    """A user's words, sorted into what can become a value. Whoever uses one of the `numbers`, or of the `phrases`
    (quotations, else proper names), takes it away. With an `answer`, each string is that.
    """

    def __init__(self, words: str, answer: str | None = None) -> None:
        said = " ".join(words.split())
        self.text = said[:TEXT_CHARS] if answer is None else answer
        """The string for which nothing better is found."""
        self.negative = _NEGATION.search(said) is not None
        self._said = said if answer is None else ""
        self._plain = f" {_plain(words)} "
        self.numbers = [float(each[0]) if "." in each[0] else int(each[0]) for each in _NUMBER.finditer(said)]
        names = (_name(each[0]) for each in _CAPITALISED.finditer(_QUOTED.sub('""', self._said)))
        quoted = ["".join(each.groups("")) for each in _QUOTED.finditer(self._said)]
        self.phrases = quoted + [name for name in names if name and not _DAY.fullmatch(name)]
        self._names = len(self.phrases) - len(quoted)

    def mentions(self, value: object) -> bool:
        """Whether the words say `value`, as words of their own."""
        said = _plain(str(value))
        return bool(said) and f" {said} " in self._plain

    def take_phrase(self) -> str | None:
        """The next quotation or proper name."""
        return self.phrases.pop(0) if self.phrases else None

    def take_text(self, name: str) -> str:
        """A string for the field `name`: what its name asks for, a quotation, a proper name, or after a preposition."""
        special = _SPECIAL.get(name.lower())
        if special and (match := special.search(self._said)):
            return match[0]
        if name.lower() in _ALL_OF_IT and len(self.phrases) <= self._names:
            return self.text or name
        after = _AFTER.search(self._said)
        return self.take_phrase() or (after[1] if after else self.text) or name or "demo"


class _Endless(Exception):
    """A value has no end, or more parts than are made."""


class _Maker:
    """A schema's root, which references start from, and the words that values are made of."""

    def __init__(self, root: object, words: UserWords) -> None:
        self._root = root
        self._references = References(root, "")
        self._words = words
        self._left = VALUES

    def value(self) -> Any:
        """A value of the whole schema; an empty object for one that has no end, or makes no sense."""
        try:
            return self._value(self._root, "", 0)
        except (_Endless, TypeError, ValueError, ArithmeticError, AttributeError, LookupError, InvalidRequest):
            return {}

    def _value(self, schema: object, name: str, depth: int, others: Sequence[Any] = ()) -> Any:
        """A value of a part of the schema, none of the `others` if that is easy. Raises _Endless."""
        self._left -= 1
        if depth > DEPTH or self._left < 0:
            raise _Endless
        part = self._target(schema)
        kind, choices = _kind(part), [part["const"]] if "const" in part else part.get("enum")
        if choices:
            best = choices[len(others) :] if others else self._values_in_words(choices)
            return next((each for each in (*best, *choices) if each not in others), choices[0])
        if options := part.get("anyOf") or part.get("oneOf") or part.get("allOf"):
            return self._first([self._target(each) for each in options], name, depth)
        match kind:
            case list():
                return self._first([{**part, "type": each} for each in cast(list[Any], kind)], name, depth)
            case "object":
                return self._object(part, depth)
            case "array":
                return self._array(part, name, depth)
            case "string":
                return self._string(part, name, others)
            case "number" | "integer":
                return self._number(part, others, whole=kind == "integer")
            case "boolean":
                return self._words.negative == (True in others)
            case "null":
                return None
            case _:
                return self._words.text or name or "demo"

    def _target(self, part: Any) -> Part:
        """A part, or what it refers to. Raises _Endless."""
        for _ in range(DEPTH):
            if not isinstance(part, dict):
                return {}
            known = cast(Part, part)
            if "$ref" not in known:
                return known
            part = self._references.target(known["$ref"], "")
        raise _Endless

    def _first(self, options: Sequence[Part], name: str, depth: int) -> Any:
        """A value of the first option that has an end: simple ones first, and deep down those without parts."""
        null = 2 if depth < GENEROUS else -1

        def rank(option: Part) -> int:
            simple = "enum" in option or "const" in option or option.get("type") in _SCALARS
            return null if option.get("type") == "null" else 0 if simple else 1

        for option in sorted(options, key=rank):
            try:
                return self._value(option, name, depth + 1)
            except _Endless:
                continue
        raise _Endless

    def _values_in_words(self, values: Sequence[Any]) -> Iterator[Any]:
        return (value for value in values if value is not None and self._words.mentions(value))

    def _object(self, part: Part, depth: int) -> dict[str, Any]:
        required: list[str] = part.get("required") or []
        rest: Any = part.get("additionalProperties", True)
        properties: Mapping[str, Any] = {**dict.fromkeys(required, rest), **(part.get("properties") or {})}
        least, most = int(part.get("minProperties", 0)), int(part.get("maxProperties", VALUES))
        optional = [name for name in properties if name not in required]
        about = [name for name in optional if depth < GENEROUS and self._is_about(name, properties[name])]
        wanted = min(max(least, len(required) + len(about)), most) - len(required)
        optional = about + [name for name in optional if name not in about]
        names = {*required, *optional[: max(0, wanted)]}
        made = {
            name: self._value(inner, name, depth + 1)  # lists first, as they need more of the words
            for name, inner in sorted(properties.items(), key=lambda each: _kind(self._target(each[1])) != "array")
            if name in names
        }
        if not made and most and (least or (depth == 0 and not properties)):
            return self._of_any_name(part, depth)
        return {name: made[name] for name in properties if name in made}

    def _is_about(self, name: str, schema: Any) -> bool:
        """Whether the words speak of an optional property, or of one of its choices."""
        return self._words.mentions(name) or any(self._values_in_words(self._target(schema).get("enum", ())))

    def _of_any_name(self, part: Part, depth: int) -> dict[str, Any]:
        """An object with a member of an undeclared name, if there may be one."""
        name, inner = "answer", part.get("additionalProperties", True)
        for pattern, each in part.get("patternProperties", {}).items():
            name, inner = matching(pattern), each
        if "propertyNames" in part:
            name = str(self._value({"type": "string", **part["propertyNames"]}, "", GENEROUS))
        return {} if inner is False else {name: self._value(inner, "", depth + 1)}

    def _array(self, part: Part, name: str, depth: int) -> list[Any]:
        first: list[Any] = part.get("prefixItems") or []
        rest: Any = part.get("items", True)
        least, unique = int(part.get("minItems", 0)), bool(part.get("uniqueItems"))
        most = int(part.get("maxItems", max(least, len(first), ITEMS)))
        value = [self._value(each, name, depth + 1) for each in first[:most]]
        if "items" in part and rest is not False and depth < GENEROUS:
            item = self._target(rest)
            told = [*self._values_in_words(item.get("enum", ()))][: max(0, min(most, ITEMS) - len(value))]
            value, least = value + told, max(least, 1)
            if item.get("type") in ("number", "integer"):
                least = max(least, min(ITEMS, len(value) + len(self._words.numbers)))
            elif item.get("type") == "string" and KINDS["string"].isdisjoint(item):
                least = max(least, min(ITEMS, len(value) + len(self._words.phrases)))
        if unique:
            value = [each for place, each in enumerate(value) if each not in value[:place]]
        while len(value) < min(most, least):
            value.append(self._value(rest, name, depth + 1, value if unique else ()))
        return value

    def _string(self, part: Part, name: str, others: Sequence[Any]) -> str:
        if "pattern" in part:
            return matching(part["pattern"])
        if part.get("format") in _FORMATS:
            return _FORMATS[part["format"]]
        text = self._words.take_text(name)
        if text in others:
            text = f"{len(others) + 1} {text}"
        least, most = int(part.get("minLength", 0)), min(int(part.get("maxLength", MAX_CHARS)), MAX_CHARS)
        return text if least <= len(text) <= most else text[:most].ljust(min(least, MAX_CHARS), ".")

    def _number(self, part: Part, others: Sequence[Any], *, whole: bool) -> float:
        schema = {key: part[key] for key in ("type", *KINDS["number"]) if key in part}
        told = self._words.numbers
        number = next((each for each in (*told, *_easy(part, len(others))) if _fits(each, schema, others)), 0)
        if number in told:
            told.remove(number)
        return int(number) if whole else number


def _fits(number: float, schema: Part, others: Sequence[Any]) -> bool:
    return number not in others and is_valid(schema, number)


def _easy(part: Part, taken: int) -> Iterator[float]:
    """Numbers that are easily written, some of which may lie between the bounds, and be none of those `taken`."""
    step = part.get("multipleOf", 1)
    least = [part[key] for key in ("minimum", "exclusiveMinimum") if key in part]
    most = [part[key] for key in ("maximum", "exclusiveMaximum") if key in part]
    low = max(least, default=min(most) - 2 * step if most else step)
    high = min(most, default=low + 2 * step)
    for number in (taken, *range(taken + 2)):
        yield (math.ceil(low / step) + number) * step
    yield from ((low + high) / 2, low, high)


def _kind(part: Part) -> Any:
    """The type of a part, or that which its other keywords are about."""
    return part.get("type", next((kind for kind, keywords in KINDS.items() if not keywords.isdisjoint(part)), None))


def _name(phrase: str) -> str:
    """A capitalised phrase without the words that only open a sentence."""
    parts = phrase.split(" ")
    while parts and parts[0].lower() in _OPENERS:
        parts.pop(0)
    return " ".join(parts).removesuffix("'s")


def _plain(text: str) -> str:
    """The words of a text alone, in lower case, one space apart: `my_flag` is "my flag"."""
    return " ".join(_WORD.findall(text.lower()))
