"""How a script is put together: of the shared files what it reaches, and what it seldom reaches only once it does.

Each run of a script defines all functions that stand in it before it begins. One takes about half a µs with the garbage
that it becomes, as much as a short command. So

- a function that nothing mentions is left out,
- one that is reached by `seldom('name')` alone stands within one function, `seldom`, which defines all of these when it
  is first called; and so does what only these need, be it a function, a constant or what is kept between calls,
- one that only returns an expression, returns nothing, or returns at its end alone is written where it is called. An
  argument is worked out once, as before. The call stays where an expression has an argument twice that is more than a
  name, and where a local has a name that means something else in the function.

A shared file is a row of pieces: each begins with a word at the beginning of a line that isn't `end`. One that is no
`local` is in every script that has the file, with all that it mentions. This knows as much of Lua as the scripts use.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from textwrap import indent
from typing import NamedTuple

_COMMENT = re.compile(r"^ *--.*\n| *--.*", re.MULTILINE)
_PIECE = re.compile(r"^(?!end\b)\w.*\n(?:(?:end\b|[^\w\n]).*\n|\n)*", re.MULTILINE)
_NAMES = re.compile(r"local (?:function )?(\w+(?:, \w+)*)")
_FUNCTION = re.compile(r"local function (\w+)\(([\w, ]*)\)\n(.*\n)end\n+", re.DOTALL)
_EXPRESSION = re.compile(r"  return (.*)\n")
_RESULT = re.compile(r"((?:(?!.*\breturn\b).*\n)+)  return ([^\n]*(?:\n    [^\n]*)*)\n")
_SELDOM = re.compile(r"\bseldom\('(\w+)'\)")
_ASSIGNED = re.compile(r"^ *[\w.]+(?:, [\w.]+)* = ", re.MULTILINE)
_TEXT = re.compile(r"'(?:[^'\\\n]|\\.)*'")
_BRACKET = re.compile(rf"{_TEXT.pattern}|[(){{}}\[\]]")
_PLAIN = re.compile(r"[\w.]+|'[^']*'")
_TOKEN = re.compile(r"^#!.*|(?<![\w.:])[A-Za-z_]\w*|[=~<>]=|[(){},=]")
_KEYWORDS = frozenset(
    "and break do else elseif end false for function if in local nil not or repeat return then true until while".split()  # noqa: SIM905
)
_GIVEN = frozenset(
    "redis KEYS ARGV string table math cjson tonumber tostring ipairs pairs next unpack type error pcall".split()  # noqa: SIM905
)
"""What Redis defines for scripts, as far as they use it."""
_NO_NAMES = _KEYWORDS | _GIVEN
_OPENING, _CLOSING = frozenset(("do", "then", "repeat", "else")), frozenset(("end", "until", "elseif"))


class Use(NamedTuple):
    """A name where it is used, and the locals that are bound there."""

    start: int
    name: str
    bound: frozenset[str]


class Piece:
    """A statement of a shared file, or a whole script, without comments."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = _NAMES.match(text)
        self.names = found[1].split(", ") if found else []
        """What it defines; nothing unless it is a `local`."""
        self.seldom = frozenset(_SELDOM.findall(text))
        """The functions that it may use by `seldom`."""

    @cached_property
    def masked(self) -> str:
        """The text, with nothing in its strings."""
        return _TEXT.sub(lambda found: f"'{' ' * (len(found[0]) - 2)}'", self.text)

    @cached_property
    def uses(self) -> list[Use]:
        """Each use of a name that Lua or Redis doesn't define."""
        return list(_uses(self.masked))

    @cached_property
    def undefined(self) -> frozenset[str]:
        """The names that it uses and that no `local`, parameter or loop in it defines there."""
        return frozenset(use.name for use in self.uses if use.name not in use.bound)

    @cached_property
    def assigned(self) -> frozenset[str]:
        """What it changes that it doesn't define."""
        targets = [range(*found.span()) for found in _ASSIGNED.finditer(self.masked)]
        outside = [use for use in self.uses if use.name not in use.bound]
        return frozenset(use.name for use in outside if any(use.start in each for each in targets))

    @cached_property
    def written_out(self) -> "WrittenOut | None":
        """What it is where it is called, if it is a function for which that can be."""
        found = _FUNCTION.fullmatch(self.text)
        body = found and Piece(found[3])
        if not found or not body or re.search(rf"\b(?:function|{found[1]})\b", body.masked):
            return None
        about = found[1], tuple(filter(None, found[2].split(", "))), body
        if not re.search(r"\breturn\b", body.masked):
            return Statements(*about)
        expression = _EXPRESSION.fullmatch(body.text)
        if expression and len(_split(expression[1])) == 1:
            return Expression(found[1], about[1], Piece(expression[1]))
        return Result(*about) if _RESULT.fullmatch(body.text) else None


class WrittenOut(ABC):
    """A function that is written where it is called."""

    def __init__(self, name: str, parameters: tuple[str, ...], body: Piece) -> None:
        self.name, self.parameters, self.body = name, parameters, body
        self._outside = body.undefined.difference(parameters)
        """The names in it that it doesn't define."""

    before: re.Pattern[str]
    """What is before a call that it may stand for, from the beginning of the line on."""

    @abstractmethod
    def of(self, arguments: Sequence[str], before: str) -> str | None:
        """What stands for a call with these arguments, and with what is `before` it; None where nothing can."""

    def in_place(self, text: str, use: Use) -> str:
        """Some Lua with what it comes to in the place of a call, as far as it can stand for that."""
        line = text.rfind("\n", 0, use.start) + 1
        arguments = use.start + len(self.name) + 1
        before = self.before.match(text, line, use.start)
        if not before or use.bound & self._outside or text[arguments - 1] != "(":
            return text
        end = _closing(text, arguments)
        value = self.of([each.strip() for each in _split(text[arguments:end])], before[1])
        return text[: use.start - len(before[1])] + value + text[end + 1 :] if value else text

    def given(self, arguments: Sequence[str]) -> dict[str, str] | None:
        """The arguments by the names of their parameters; None where one may stand for several."""
        lacking = len(self.parameters) - len(arguments)
        if lacking < 0 or (lacking > 0 and arguments and not _PLAIN.fullmatch(arguments[-1])):
            return None
        return dict(zip(self.parameters, [*arguments, *["nil"] * lacking], strict=True))


class Expression(WrittenOut):
    """One that only returns an expression."""

    before = re.compile(r".*()", re.DOTALL)

    def of(self, arguments: Sequence[str], before: str) -> str | None:
        """The expression, in brackets."""
        given = self.given(arguments)
        if given is None:
            return None
        written, at, body = "", 0, self.body.text
        uses = [use for use in self.body.uses if use.name in given]
        for use in uses:
            value = given[use.name]
            if not _PLAIN.fullmatch(value):
                if sum(each.name == use.name for each in uses) > 1:
                    return None
                value = f"({value})"
            written, at = written + body[at : use.start] + value, use.start + len(use.name)
        return f"({written}{body[at:]})"


class Statements(WrittenOut):
    """One that returns nothing: a call is a statement on lines of its own."""

    before = re.compile(r"( *)\Z")

    def of(self, arguments: Sequence[str], before: str) -> str | None:
        """A block with the parameters as locals."""
        return self.block(arguments, before, self.body.text)

    def block(self, arguments: Sequence[str], indented: str, body: str) -> str | None:
        """A block of `body` with the parameters as locals."""
        given = self.given(arguments)
        if given is None:
            return None
        first = f"  local {', '.join(given)} = {', '.join(given.values())}\n" if given else ""
        return indent(f"do\n{first}{body}end", indented)


class Result(Statements):
    """One that returns at its end alone: a call is all that one or more locals are."""

    before = re.compile(r"( *local [\w, ]+ = )\Z")

    def of(self, arguments: Sequence[str], before: str) -> str | None:
        """A block with the parameters as locals, which assigns what it returns."""
        names, found = before.split(" = ")[0].split("local ")[1].split(", "), _RESULT.fullmatch(self.body.text)
        taken = {name for use in self.body.uses for name in use.bound}.union(self.parameters)
        if found is None or len(names) != len(_split(found[2])) or taken.intersection(names):
            return None
        indented = before[: -len(before.lstrip())]
        block = self.block(arguments, indented, f"{found[1]}  {', '.join(names)} = {found[2]}\n")
        return block and f"{before.removesuffix(' = ')}\n{block}"


def composed(shared: Iterable[str], body: str, given: Mapping[str, str] | None = None) -> str:
    """What a script needs of shared files, and the script; `given` are the expressions of the locals before it.

    A function that uses a local from outside costs something for each when it is defined, called or not. So `seldom`,
    which uses many, works out again what is given and never changes.
    """
    given = dict(given or {})
    every = list(_written_out([*(each for text in shared for each in _pieces(text)), Piece(_COMMENT.sub("", body))]))
    script = every.pop()
    statements = [each for each in every if not each.names]
    for name in {name for each in (*every, script) for name in each.assigned}.intersection(given):
        del given[name]
    return _level(every, [], [script, *statements], given) + script.text


def undefined(source: str) -> frozenset[str]:
    """The names that some Lua uses without defining them there."""
    return Piece(_COMMENT.sub("", source)).undefined


@cache
def _pieces(text: str) -> list[Piece]:
    """The pieces of a shared file, in order. Many scripts have the same ones, which are looked through once."""
    return [_piece(each) for each in _PIECE.findall(_COMMENT.sub("", text))]


_piece = cache(Piece)


def _written_out(every: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces, with what functions before them come to in the place of their calls."""
    known: dict[str, WrittenOut] = {}
    for each in every:
        text = each.text
        for use in reversed(each.uses):  # the calls in a call's arguments before it
            if use.name in known:
                text = known[use.name].in_place(text, use)
        changed = each if text == each.text else _piece(text)
        if changed.written_out:
            known[changed.written_out.name] = changed.written_out
        yield changed


def _level(
    every: Sequence[Piece],
    above: Sequence[Piece],
    entries: Sequence[Piece],
    given: Mapping[str, str],
    depth: int = 0,
) -> str:
    """The pieces that `entries` use, but for those that are defined `above`; and what defines the others when one that
    is used seldom is called.
    """
    here = [each for each in _reached(every, entries) if each not in above]
    asked = {name for each in (*here, *entries) for name in each.seldom}
    if not asked:
        return "".join(each.text for each in here)
    there, defined = [*above, *here], f"defined_{depth}"
    entered = [each for each in every if asked.intersection(each.names) and each not in there]
    rare = _level(every, there, entered, {}, depth + 1)
    again = "".join(f"local {name} = {given[name]}\n" for name in sorted(Piece(rare).undefined.intersection(given)))
    return f"""local seldom, {defined}
{"".join(each.text for each in here)}
function seldom(name)
  if not {defined} then
{indent(again + rare, "    ")}    {defined} = {{ {", ".join(f"{name} = {name}" for name in sorted(asked))} }}
  end
  return {defined}[name]
end
"""


def _reached(every: Sequence[Piece], entries: Sequence[Piece]) -> list[Piece]:
    """Of `every` piece the entries, those that they use, and those that these use."""
    wanted, new = {name for each in entries for name in each.names}, list(entries)
    while new:
        names = {name for each in new for name in each.undefined} - wanted
        wanted |= names
        new = [each for each in every if names.intersection(each.names)]
    return [each for each in every if each in entries or wanted.intersection(each.names)]


def _closing(text: str, start: int) -> int:
    """Where the bracket closes that was opened before `start`. Raises ValueError."""
    depth = 1
    for found in _BRACKET.finditer(text, start):
        depth += (found[0] in "({[") - (found[0] in ")}]")
        if depth == 0:
            return found.start()
    raise ValueError(f"nothing closes the bracket before {text[start : start + 60]}")


def _split(text: str) -> list[str]:
    """What stands between the commas that are in no bracket."""
    parts, start, depth = list[str](), 0, 0
    for at, character in enumerate(Piece(text).masked):
        depth += (character in "({[") - (character in ")}]")
        if character == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [each for each in (*parts, text[start:]) if each.strip()]


def _uses(masked: str) -> Iterator[Use]:
    """Each use of a name. A `local` counts from its name on to the end of its block."""
    tokens = [(found[0], found.start()) for found in _TOKEN.finditer(masked)]
    tokens.append(("", len(masked)))
    scopes, bound, loop, at = [frozenset[str]()], frozenset[str](), frozenset[str](), 0

    def names() -> frozenset[str]:
        """The names in the list that begins here, which is passed over."""
        nonlocal at
        first = at
        while (token := tokens[at][0]) == "," or (token.isidentifier() and token not in _KEYWORDS):
            at += 1
        return frozenset(token for token, _ in tokens[first:at]) - {","}

    while at < len(tokens) - 1:
        (token, start), at = tokens[at], at + 1
        if token == "local":
            bound |= {tokens[at + 1][0]} if tokens[at][0] == "function" else names()
        elif token == "for":
            loop = names()
        elif token == "function":
            while tokens[at][0] != "(":
                at += 1
            at += 1
            scopes.append(bound)
            bound |= names()
        elif token in _OPENING:
            if token == "else":
                bound = scopes.pop()
            scopes.append(bound)
            bound, loop = bound | loop, frozenset[str]()
        elif token in _CLOSING:
            bound = scopes.pop()
        elif token not in _NO_NAMES and token.isidentifier():
            is_field = tokens[at][0] == "=" and at > 1 and tokens[at - 2][0] in ("{", ",")
            if not is_field:
                yield Use(start, token, bound)
