"""Functions: which are declared in the developer message, and which one a user's words ask for.

Declarations are found by their lines (`type NAME = …` inside `namespace NAME {…}`). The same tools come with every
request of a client, so they are cached, within bounds. A signature is read back into a JSON schema of its arguments
only when its function is called. The renderer's TypeScript is not quite TypeScript (a description's second line stands
bare, `"a" | "b"[]` is an array of both), so the reader is tolerant: an unreadable type may be anything, and it never
raises.
"""

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, cast

from service.features.demo.reading import PAUSE

FUNCTIONS = 128
"""The most declared functions that are considered."""

SIGNATURE_CHARS, LINES = 16_384, 1000
"""The length to which a signature is read, in characters and in lines."""

CALLS = 8
"""The most calls in one answer."""

LISTED_CHARS = 2000
"""The length to which the words are looked through for more than one call."""

_NAMES = r"[A-Z][\w'-]{0,40}(?: [A-Z][\w'-]{0,40}){0,2}"
_LISTED = rf"((?:(?:,| and|, and| &) (?:in |for |at |of |the ){{0,2}}{_NAMES}){{1,7}})"
_CLAUSE = re.compile(r"\band\b|;|\. ")
_LINE = re.compile(r"\n(?:namespace ([\w-]+) \{(?=\n)|type ([\w-]+) = (?=\())")
_ASKS_FOR_A_TOOL = re.compile(
    r"\b(?:use|call|run|invoke|using|with)\b[^.!?\n]{0,30}\b(?:tools?|functions?)\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_COMMON = frozenset(
    _WORD.findall(
        "a an the of for to in on at by and or is are be it its this that with from as i me my you your what which who "
        "get set do use call run tool function current given user string number boolean any null type return if not "
        "please can will name value default so we us how when where words word hello say tell thi"
    )
)
_OBJECT_DESCRIPTION = re.compile(r": +//[^\n]*\n(?:(?! *\{)[^\n]*\n){0,50}(?= *\{)")
_FIELD = re.compile(r"(?P<name>[\w$-]+)(?P<optional>\??): ?(?P<type>.*)")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_TYPES = ("string", "number", "boolean", "null")

Schema = dict[str, Any]


@dataclass(frozen=True)
class DeclaredFunction:
    """A declared function: full name (`functions.get_weather`), description and TypeScript signature."""

    name: str
    description: str = ""
    signature: str = ""

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def bare(self) -> bool:
        """Whether its input is a text of its own instead of a JSON object."""
        return self.signature.startswith("(_: string)")

    @cached_property
    def parameters(self) -> Schema:
        """The schema of its arguments."""
        return read_signature(self.signature)

    @cached_property
    def vocabulary(self) -> tuple[frozenset[str], frozenset[str]]:
        """The telling words of its name, and of its description and parameters."""
        return _vocabulary(self.short), _vocabulary(f"{self.description} {self.signature}")


PYTHON = DeclaredFunction("python", "Runs code.", "(_: string)")
"""The tool of the system message, as the model was trained with it. Its input is code."""


@lru_cache(maxsize=32)
def declarations_in(developer: str) -> tuple[DeclaredFunction, ...]:
    """The functions that a developer message declares, in order, FUNCTIONS at most."""
    found: list[DeclaredFunction] = []
    namespace, end = "", 0
    for match in _LINE.finditer(developer) if "\nnamespace " in developer else ():
        if match[1]:
            namespace = match[1]
        elif namespace and len(found) < FUNCTIONS:
            description = developer[end : match.start()]
            end = developer.find("=> any;", match.end()) % (len(developer) + 1)
            signature = developer[match.end() : end][:SIGNATURE_CHARS]
            found.append(DeclaredFunction(f"{namespace}.{match[2]}", description, signature))
    return tuple(found)


def fitting(
    declarations: Sequence[DeclaredFunction], words: str
) -> Generator[tuple[int, ...], None, DeclaredFunction | None]:
    """The function that fits the words best, or None where none fits. Yields are pauses.

    Where the words ask for some tool, any word in common is enough, and the first function is better than none.
    """
    said = _vocabulary(words)
    best, best_score = None, 0
    for declaration in declarations:
        yield PAUSE
        name, others = declaration.vocabulary
        score = 3 * len(name & said) + len((others - name) & said)
        if len(declaration.short) > 3 and declaration.short in words:
            score = 100
        if score > best_score:
            best, best_score = declaration, score
    if declarations and asks_for_a_tool(words):
        return best or declarations[0]
    return best if best_score > 1 else None


def also(
    called: DeclaredFunction, given: Mapping[str, object], declarations: Sequence[DeclaredFunction], words: str
) -> Generator[tuple[int, ...], None, list[tuple[DeclaredFunction, str]]]:
    """The functions that the words ask for beside a call with these arguments, and the words for each.

    The same once more for each name that is listed beside an argument, and other functions for later clauses.
    """
    calls: list[tuple[DeclaredFunction, str]] = []
    said = " ".join(words[:LISTED_CHARS].split())
    for value in given.values():
        listed = re.search(rf"(?<!\w){re.escape(value)}{_LISTED}", said) if isinstance(value, str) and value else None
        names = re.findall(_NAMES, listed[1]) if listed else []
        calls += [(called, said.replace(cast(str, value), name)) for name in names if name not in given.values()]
    for clause in _CLAUSE.split(said)[1:CALLS]:
        other = yield from fitting(declarations, clause)
        if other is not None and other is not called and other not in [function for function, _ in calls]:
            calls.append((other, clause))
    return calls[: CALLS - 1]


def asks_for_a_tool(words: str) -> bool:
    """Whether the words ask for some tool or function to be used."""
    return _ASKS_FOR_A_TOOL.search(words) is not None


def _vocabulary(text: str) -> frozenset[str]:
    """The telling words of a text, in lower case and singular; snake_case and camelCase come apart."""
    words = (word.lower() for word in _WORD.findall(text))
    return frozenset(word.removesuffix("s") for word in words if len(word) > 2) - _COMMON


def read_signature(text: str) -> Schema:
    """The schema of the arguments of `(_: {…}) => any`, line by line: each has a field, or ends an object."""
    opened: list[tuple[Schema, str, Schema]] = []
    """The objects that the line is in: each with the object before it, and its name there."""
    root = record = _record()
    for line in islice(_OBJECT_DESCRIPTION.sub(": ", text).splitlines()[1:], LINES):
        code = line.partition("//")[0].strip(" ,")
        field = _FIELD.fullmatch(code)
        if field is not None:
            record["properties"][field["name"]] = _type(field["type"])
            record["required"] += [] if field["optional"] else [field["name"]]
        if code.endswith("{"):
            opened.append((record, field["name"] if field else "", record := _record()))
        elif code.startswith("}") and opened:
            before, name, inner = opened.pop()
            for _ in range(code.count("[]")):
                inner = {"type": "array", "items": inner}
            before["properties"] |= {name: inner} if name else {}
            record = before
    return root


def _record() -> Schema:
    return {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def _type(text: str) -> Schema:
    """The schema of a type. Brackets have no parentheses: `"a" | "b"[]` is an array of either."""
    if text.endswith("[]"):
        return {"type": "array", "items": _type(text[:-2])}
    if literals := _LITERAL.findall(text):
        return {"enum": literals}
    kinds = [each for each in text.split(" | ") if each in _TYPES]
    return {"type": kinds if kinds[1:] else kinds[0]} if kinds else {"type": "array"} if "<" in text else {}
