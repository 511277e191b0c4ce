"""Arguments: a value for a shape, picked from the user's words where they fit and made up where they don't.

Each name, number or quotation is used once, in order, so that two cities go to two fields. Optional fields
are filled only by what was found. The patterns run over users' text: each is linear.
"""

import math
import re

from service.engine.demo.shapes import (
    Anything,
    Boolean,
    Either,
    Field,
    ListOf,
    Nothing,
    Number,
    OneOf,
    Record,
    Shape,
    Text,
)

TEXT_CHARS = 400
"""The longest string made of the user's words."""

ITEMS = 16
"""The most items put into a list, whatever the words hold or the shape asks for."""

VALUES = 2000
"""The most values in one set of arguments, nested ones included; past it, everything is null."""

_QUOTED = re.compile(r"\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”|`([^`\n]{1,400})`")
_CAPITALISED = re.compile(r"\b[A-Z][\w'-]{0,40}(?: [A-Z][\w'-]{0,40}){0,3}")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?!\w)")
_AFTER = re.compile(r"\b(?:in|for|at|of|to|from|on|about|named|called) (?:the )?([\w'-]{1,40})")
_BESIDE = re.compile(r"(?: is |: ?| ?= ?| (?=[A-Z\d\"]|\S{1,64}@))(?:\"([^\"]{1,400})\"|([\w@./+-]{1,100}))")
_WORD = re.compile(r"[^\W_]+")
_SUM = re.compile(r"[\d.(][\d.()]{0,20}(?: ?[-+*/^%] ?[\d.()]{1,20}){1,20}")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,100}\w|https?://[^\s\"'<>]{1,300}")
_NEGATION = re.compile(r"\b(?:not?|don't|off|disabled?|false|without|never)\b")
_WHOLE = frozenset({"query", "q", "question", "text", "message", "prompt", "content", "input", "body", "search"})
_ADDRESSES = frozenset({"email", "mail", "to", "recipient", "url", "uri", "link", "website", "address"})
_SUMS = frozenset({"expression", "formula", "equation", "calculation"})
_OPENERS = frozenset(
    re.findall(
        r"\S+",
        "a an the and but or i i'm i'd what what's when where who why how is are was do does did can "
        "could would will should please use call get give show tell find look check search make let "
        "let's hello hi thanks ok if then my say run send set add compute calculate book create convert "
        "translate fetch lookup ask answer and also now celsius fahrenheit ",
    )
)


class Words:
    """A user's words, sorted into what can become a value. Taking a value removes it."""

    def __init__(self, words: str) -> None:
        self.values_left = VALUES
        self.text = " ".join(words.split())
        self.lower = self.text.lower()
        self.quoted = ["".join(match.groups("")) for match in _QUOTED.finditer(self.text)]
        self.names = [name for match in _CAPITALISED.finditer(self.text) if (name := _name(match[0]))]
        self.numbers = [_number(match[0]) for match in _NUMBER.finditer(self.text)]
        self._plain = f" {_plain(words)} "

    def take_number(self, shape: Number) -> object:
        """The first number that the shape allows, or Missing."""
        for number in self.numbers:
            if (shape.least is None or number >= shape.least) and (isinstance(number, int) or not shape.whole):
                self.numbers.remove(number)
                return number
        return _MISSING

    def mentions(self, value: object) -> bool:
        """Whether the words say `value`, as a word of its own."""
        said = _plain(str(value))
        return bool(said) and f" {said} " in self._plain


class Missing:
    """The words hold nothing that fits."""


_MISSING = Missing()


def arguments(shape: Record, words: str) -> dict[str, object]:
    """Arguments for a call: every required field, and the optional ones that the words speak of."""
    return _record(shape, Words(words))


def saying(answer: str, words: str) -> Words:
    """Words of which a free text is `answer`, and everything else what the user said."""
    source = Words(words)
    source.quoted, source.names, source.text = [], [], answer
    return source


def _value(shape: Shape, name: str, words: Words) -> object:
    words.values_left -= 1
    if words.values_left < 0:
        return None
    value = found(shape, name, words)
    return _made_up(shape, name, words) if isinstance(value, Missing) else value


def _record(shape: Record, words: Words) -> dict[str, object]:
    values: dict[str, object] = {}
    for inner in shape.fields:
        value = _value(inner.shape, inner.name, words) if inner.required else optional(inner, words)
        if not isinstance(value, Missing):
            values[inner.name] = value
    return values


def optional(inner: Field, words: Words) -> object:
    """An optional field is filled where the words name it, or a choice of it."""
    if isinstance(inner.shape, OneOf) or words.mentions(inner.name):
        return found(inner.shape, inner.name, words)
    return _MISSING


def found(shape: Shape, name: str, words: Words) -> object:
    """A value that the words hold for this shape, or Missing."""
    match shape:
        case Text():
            return _text(name, words)
        case Number():
            return words.take_number(shape)
        case Boolean():
            return not _NEGATION.search(words.lower) if words.mentions(name) else _MISSING
        case OneOf(values):
            return next((value for value in values if value is not None and _names(words, value)), _MISSING)
        case ListOf(item):
            return _items(item, name, words)
        case Either(options):
            values = (found(option, name, words) for option in options)
            return next((value for value in values if not isinstance(value, Missing)), _MISSING)
        case Record(fields) if fields:
            return _record(shape, words)
        case Record() | Nothing() | Anything():
            return _MISSING


def _made_up(shape: Shape, name: str, words: Words) -> object:
    """A value where the words hold none."""
    match shape:
        case Text() | Anything():
            return words.text[:TEXT_CHARS] or name or "demo"
        case Number(least):
            return 1 if least is None else max(1, math.ceil(least))
        case Boolean():
            return True
        case OneOf(values):
            return values[0] if values else None
        case ListOf(item, least):
            return [_value(item, name, words) for _ in range(min(least, ITEMS))]
        case Either(options):
            return None if Nothing() in options else _made_up(options[0], name, words)
        case Record():
            return _record(shape, words)
        case Nothing():
            return None


def _text(name: str, words: Words) -> object:
    """A string for the field `name`: said beside it, quoted, a proper name, or after a preposition."""
    beside = _said_beside(name, words) if name else ""
    if beside:
        return beside
    if words.quoted:
        return words.quoted.pop(0)
    lower = name.lower()
    special = _ADDRESS if lower in _ADDRESSES else _SUM if lower in _SUMS else None
    match = special.search(words.text) if special else None
    if match:
        return match[0].strip()
    if lower in _WHOLE:
        return words.text[:TEXT_CHARS] or _MISSING
    if words.names:
        return words.names.pop(0)
    after = _AFTER.search(words.text)
    return after[1] if after else _MISSING


def _said_beside(name: str, words: Words) -> str:
    """What stands right after the field's name: `city: Oslo`, `to ann@example.org`, `subject "Lunch"`."""
    spoken = f" {name.replace('_', ' ').lower()}"
    place = f" {words.lower}".find(spoken)
    value = _BESIDE.match(words.text, place + len(spoken) - 1) if place >= 0 else None
    return (value[1] or value[2]).rstrip(".") if value else ""


def _items(item: Shape, name: str, words: Words) -> object:
    """A list of all that the words hold for its items."""
    if isinstance(item, OneOf):
        named: list[object] = [value for value in item.values if _names(words, value)]
        return named[:ITEMS] or _MISSING
    items: list[object] = []
    while len(items) < ITEMS:
        more = bool(words.names or words.quoted) if isinstance(item, Text) else isinstance(item, Number)
        value = found(item, name, words) if more or not items else _MISSING
        if isinstance(value, Missing):
            break
        items.append(value)
    return items or _MISSING


def _names(words: Words, value: object) -> bool:
    """Whether the words name a choice: whole, or "celsius" for "c"."""
    if isinstance(value, str) and value.lower() in ("c", "f"):
        return ("celsius" if value.lower() == "c" else "fahrenheit") in words.lower
    return words.mentions(value)


def _name(phrase: str) -> str:
    """A capitalised phrase without the word that only opens a sentence; empty where nothing is left."""
    parts = phrase.split(" ")
    while parts and parts[0].lower() in _OPENERS:
        parts.pop(0)
    return " ".join(parts).removesuffix("'s")


def _plain(text: str) -> str:
    """The words of a text alone, in lower case, one space apart: `my_flag` is "my flag"."""
    return " ".join(_WORD.findall(text.lower()))


def _number(digits: str) -> float:
    return float(digits) if "." in digits else int(digits)
