"""The user's words as material for values: quotations, names, numbers, and the words beside a field's name.

Each name, number or quotation is used once, in order, so that two cities go to two fields. The patterns run over
users' text: each is linear.
"""

import re
from collections.abc import Callable

TEXT_CHARS = 400
"""The longest string made of the user's words."""

_QUOTED = re.compile(r"\"([^\"\n]{1,400})\"|“([^”\n]{1,400})”|`([^`\n]{1,400})`")
_CAPITALISED = re.compile(r"\b[A-Z][\w'-]{0,40}(?: [A-Z][\w'-]{0,40}){0,3}")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?!\w)")
_PREPOSITIONS = r"(?:in|for|at|of|to|from|on|about|named|called)"
_AFTER = re.compile(
    rf"\b{_PREPOSITIONS} (?:an? ([\w'-]{{1,40}}(?: (?!{_PREPOSITIONS}\b|and\b)[\w'-]{{1,40}})?)"
    r"|(?:the )?((?!the\b)[\w'-]{1,40}))"
)
_BESIDE = re.compile(r"(?: is |: ?| ?= ?| (?=[A-Z\d\"]|\S{1,64}@))(?:\"([^\"]{1,400})\"|([\w@./+-]{1,100}))")
_WORD = re.compile(r"[^\W_]+")
_SUM = re.compile(r"[\d.(][\d.()]{0,20}(?: ?[-+*/^%] ?[\d.()]{1,20}){1,20}")
_ADDRESS = re.compile(r"[\w.+-]{1,64}@[\w.-]{1,100}\w|https?://[^\s\"'<>]{1,300}")
_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DAY = re.compile(
    r"\d{4}-\d\d-\d\d|\b(?:(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|[Tt]oday|[Tt]omorrow|[Tt]onight)\b"
    rf"|\b(?:{_MONTHS}) \d{{1,2}}\b|\b\d{{1,2}} (?:{_MONTHS})\b"
)
_NEGATION = re.compile(r"\b(?:not?|don't|off|disabled?|false|without|never)\b")
_ALL_OF_IT = frozenset({"query", "q", "question", "text", "message", "prompt", "content", "input", "body", "search"})
_ADDRESSES = frozenset({"email", "mail", "to", "recipient", "url", "uri", "link", "website", "address"})
_DAYS = frozenset({"date", "day", "when", "weekday", "deadline", "due"})
_SUMS = frozenset({"expression", "formula", "equation", "calculation"})
_OPENERS = frozenset(
    re.findall(
        r"\S+",
        "a an the and but or i i'm i'd what what's when where who why how is are was do does did can "
        "could would will should please use call get give show tell find look check search make let "
        "let's hello hi thanks ok if then my say run send set add compute calculate book create convert "
        "translate fetch lookup ask answer and also now plan write celsius fahrenheit ",
    )
)


class Words:
    """A user's words, sorted into what can become a value. Taking a value removes it.

    With an `answer`, a string says that or a word of it, and only other values come from the words.
    """

    def __init__(self, words: str, answer: str | None = None) -> None:
        said = " ".join(words.split())
        self.answering = answer is not None
        self.text = said if answer is None else answer
        """The value of a string for which nothing better is found."""
        self._lower = said.lower()
        self._plain = f" {_plain(words)} "
        self._numbers = [_number(match[0]) for match in _NUMBER.finditer(said)]
        self._quoted: list[str] = []
        self._names: list[str] = []
        if answer is None:
            self._quoted = ["".join(match.groups("")) for match in _QUOTED.finditer(said)]
            spoken = _QUOTED.sub('""', said)
            self._names = [name for match in _CAPITALISED.finditer(spoken) if (name := _name(match[0]))]

    @property
    def more_text(self) -> bool:
        """Whether names or quotations are left."""
        return bool(self._names or self._quoted)

    def mentions(self, value: object) -> bool:
        """Whether the words say `value`, as words of their own, or "celsius" for "c"."""
        if isinstance(value, str) and value.lower() in ("c", "f"):
            return ("celsius" if value.lower() == "c" else "fahrenheit") in self._lower
        said = _plain(str(value))
        return bool(said) and f" {said} " in self._plain

    def take_number(self, fits: Callable[[float], bool]) -> float | None:
        """The first number that fits."""
        number = next(filter(fits, self._numbers), None)
        if number is not None:
            self._numbers.remove(number)
        return number

    def switch(self, name: str) -> bool | None:
        """Whether the flag `name` is to be on, if the words speak of it."""
        return not _NEGATION.search(self._lower) if self.mentions(name) else None

    def take_text(self, name: str) -> str | None:
        """A string for the field `name`: said beside it, quoted, a proper name, or after a preposition."""
        beside = self._said_beside(name) if name else ""
        if beside:
            return beside
        if self._quoted:
            return self._quoted.pop(0)
        lower = name.lower()
        special = _ADDRESS if lower in _ADDRESSES else _SUM if lower in _SUMS else _DAY if lower in _DAYS else None
        match = special.search(self.text) if special else None
        if match:
            return match[0].strip()
        if lower in _ALL_OF_IT:
            return self.text[:TEXT_CHARS] or None
        if self._names:
            return self._names.pop(0)
        after = _AFTER.search(self.text)
        return (after[1] or after[2]) if after else None

    def _said_beside(self, name: str) -> str:
        """The words right after the field's name: `city: Oslo`, `to ann@example.org`, `subject "Lunch"`."""
        spoken = f" {name.replace('_', ' ').lower()}"
        place = f" {self._lower}".find(spoken)
        value = _BESIDE.match(self.text, place + len(spoken) - 1) if place >= 0 else None
        return (value[1] or value[2]).rstrip(".") if value else ""


def _name(phrase: str) -> str:
    """A capitalised phrase without the word that only opens a sentence; empty where nothing, or a day, is left."""
    parts = phrase.split(" ")
    while parts and parts[0].lower() in _OPENERS:
        parts.pop(0)
    name = " ".join(parts).removesuffix("'s")
    return "" if _DAY.fullmatch(name) else name


def _plain(text: str) -> str:
    """The words of a text alone, in lower case, one space apart: `my_flag` is "my flag"."""
    return " ".join(_WORD.findall(text.lower()))


def _number(digits: str) -> float:
    return float(digits) if "." in digits else int(digits)
