"""Functions: which are declared in the developer message, and which one a user's words ask for.

Declarations are found by their lines (`type NAME = …` inside `namespace NAME {…}`); a signature is read only
when its function is called. The same tools come with every request of a client, so parsed declarations are cached,
within bounds. A signature is read back into a JSON schema of its arguments. The renderer's TypeScript is not quite
TypeScript (a description's second line stands bare, `"a" | "b"[]` is an array of both), so the reader is tolerant: an
unreadable type may be anything, and it never raises.
"""

import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

from service.engine.demo.reading import PAUSE

FUNCTIONS = 128
"""How many declared functions are considered."""

SIGNATURE_CHARS = 16_384
"""How much of one signature is read."""

CALLS = 8
"""The most calls in one answer."""

LISTED_CHARS = 2000
"""How much of the words is looked through for more than one call."""

CODE_CHARS = 16_384
"""How much of the words is looked through for code."""

_HAS_PYTHON = "\n## python\n"
_CODE = re.compile(r"\bpython\b[^:`\n]{0,40}(?::[ \n]*```(?:python)?\n(.+?)```|:\s*(.+))", re.IGNORECASE | re.DOTALL)
_LISTED = r"((?:(?:,| and|, and| &) (?:in |for |at |of |the ){0,2}[A-Z][\w'-]{0,40}(?: [A-Z][\w'-]{0,40}){0,2}){1,7})"
_CAPITALISED = re.compile(r"[A-Z][\w'-]{0,40}(?: [A-Z][\w'-]{0,40}){0,2}")
_CLAUSE = re.compile(r"\band\b|;|\. ")
_LINE = re.compile(r"\n(?:namespace ([\w-]+) \{(?=\n)|type ([\w-]+) = (\(.*))")
_ASKS_FOR_A_TOOL = re.compile(
    r"\b(?:use|call|run|invoke|using|with)\b[^.!?\n]{0,30}\b(?:tools?|functions?)\b", re.IGNORECASE
)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_COMMON = frozenset(
    _WORD.findall(
        "a an the of for to in on at by and or is are be it its this that with from as i me my you your "
        "what which who get set do use call run tool function current given user string number boolean "
        "any null type return the if not please can will name value type default so we us how when where "
        "words word hello say tell thi "
    )
)
_NAME_WEIGHT = 3
_ENOUGH = 2  # a word of the name, or two of the description

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


@dataclass(frozen=True)
class Declaration:
    """A declared function: full name (`functions.get_weather`), description and TypeScript signature."""

    name: str
    description: str
    signature: str

    @property
    def short(self) -> str:
        """The name without its namespace."""
        return self.name.partition(".")[2]

    @property
    def bare(self) -> bool:
        """Whether its input is a text of its own instead of a JSON object."""
        return self.signature.startswith("(_: string)")

    @cached_property
    def parameters(self) -> Schema:
        """The schema of its arguments."""
        return read_signature(self.signature)

    @cached_property
    def name_words(self) -> frozenset[str]:
        """The telling words of its name."""
        return _vocabulary(self.short)

    @cached_property
    def other_words(self) -> frozenset[str]:
        """The telling words of its description and parameters, without those of its name."""
        signature, _, _ = self.signature.partition("=> any")
        return _vocabulary(f"{self.description} {signature}") - self.name_words


PYTHON = Declaration("python", "Runs code.", "(_: string)")
"""The tool of the system message, as the model was trained with it. Its input is code."""


def code_asked_for(system: str, words: str) -> str | None:
    """The code that the words ask to run, as in "use python: 2 + 2" or between ```; None where there is none, or no
    tool that runs it.
    """
    if _HAS_PYTHON not in system:
        return None
    found = _CODE.search(words[:CODE_CHARS])
    return None if found is None else (found[1] if found[1] is not None else found[2]).strip()


@lru_cache(maxsize=32)
def declared(developer: str) -> tuple[Declaration, ...]:
    """The functions that a developer message declares, in order, FUNCTIONS at most."""
    if "\nnamespace " not in developer:
        return ()
    found: list[Declaration] = []
    namespace, matches = "", list(_LINE.finditer(developer))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        if match[1]:
            namespace = match[1]
        elif namespace and len(found) < FUNCTIONS:
            end = following.start() if following else len(developer)
            body = developer[match.start(3) : min(end, match.start(3) + SIGNATURE_CHARS)]
            found.append(Declaration(f"{namespace}.{match[2]}", _comment_before(developer, match.start() + 1), body))
    return tuple(found)


def named(name: str, declarations: tuple[Declaration, ...]) -> Declaration:
    """The declared function whose name begins like this; an undeclared one takes no arguments."""
    exact = [d for d in declarations if d.name == name] or [d for d in declarations if d.name.startswith(name)]
    return exact[0] if exact else Declaration(name, "", "")


def fitting(
    declarations: tuple[Declaration, ...], words: str, asked_for: bool
) -> Generator[tuple[int, ...], None, Declaration | None]:
    """The function that fits the words best, or None where none fits.

    Where some tool is `asked_for`, any word in common is enough, and the first function is better than none.
    """
    said = _vocabulary(words)
    best, best_score = None, 0
    for declaration in declarations:
        yield PAUSE
        score = _score(declaration, said, words)
        if score > best_score:
            best, best_score = declaration, score
    if asked_for and declarations:
        return best or declarations[0]
    return best if best_score >= _ENOUGH else None


def also(
    called: Declaration, given: Mapping[str, object], declarations: tuple[Declaration, ...], words: str
) -> Generator[tuple[int, ...], None, list[tuple[Declaration, str]]]:
    """The functions that the words ask for beside a call with these arguments, and the words for each.

    The same once more for each name that is listed beside an argument, and other functions for later clauses.
    """
    calls: list[tuple[Declaration, str]] = []
    said = " ".join(words[:LISTED_CHARS].split())
    for value in given.values():
        listed = re.search(rf"(?<!\w){re.escape(value)}{_LISTED}", said) if isinstance(value, str) and value else None
        names = _CAPITALISED.findall(listed[1]) if listed else []
        calls += [(called, said.replace(cast(str, value), name)) for name in names if name not in given.values()]
    for clause in _CLAUSE.split(said)[1:CALLS]:
        other = yield from fitting(declarations, clause, asked_for=False)
        if other is not None and other is not called and other not in [function for function, _ in calls]:
            calls.append((other, clause))
    return calls[: CALLS - 1]


def mentions_tools(words: str) -> bool:
    """Whether the words ask for some tool or function to be used."""
    return _ASKS_FOR_A_TOOL.search(words) is not None


def _score(declaration: Declaration, said: frozenset[str], words: str) -> int:
    """How many words the function and the user have in common; those of its name count more."""
    if declaration.short in words and len(declaration.short) > 3:
        return 100
    return _NAME_WEIGHT * len(declaration.name_words & said) + len(declaration.other_words & said)


def _vocabulary(text: str) -> frozenset[str]:
    """The telling words of a text, in lower case and singular; snake_case and camelCase come apart."""
    words = (word.lower() for word in _WORD.findall(text))
    return frozenset(word.removesuffix("s") for word in words if len(word) > 2) - _COMMON


def _comment_before(text: str, place: int) -> str:
    """The `//` lines that stand right before `place`."""
    lines: list[str] = []
    while place > 0:
        start = text.rfind("\n", 0, place - 1) + 1
        line = text[start : place - 1]
        if not line.startswith("//"):
            break
        lines.append(line[2:].strip())
        place = start
    return " ".join(reversed(lines))


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
