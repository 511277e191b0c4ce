"""Regular expressions that can be held: read once, written again so that engine and validator mean the same by them.

Read by Python's own parser of patterns, which matches nothing here: a pattern never runs where it could run for ever.
What isn't regular, or what xgrammar passes over in silence (lookaround, anchors in the middle), is refused.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, cast

from service.protocol.errors import InvalidRequest, shown

MAX_PATTERN_CHARS = 4096
MAX_REPEATS = 1024
"""The largest count in a pattern; the engine unrolls it, in a time that grows with its square."""

MAX_NESTED = 4096
"""The most that counts inside one another may come to."""

MAX_LOOSE = 16
"""The same where nothing marks off what is counted, as in `(a{1,4}){1,4}`: 64 of those take an engine 25 seconds."""

MAX_DEPTH = 50
"""How deep groups may be nested."""

_parser: Any = import_module("re._parser")

MOST = int(_parser.MAXREPEAT)
"""What stands for no bound of a repetition."""

Tree = list[tuple[str, Any]]
"""A parsed pattern: operations by their names in Python's parser, with their arguments."""

LAST_CHARACTER = 0x10FFFF

_NAMED = re.compile(r"\(\?<(?=[A-Za-z_])")
REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_CATEGORIES = {
    "DIGIT": [(48, 57)],
    "WORD": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "SPACE": [(9, 13), (32, 32)],
}

Ranges = list[tuple[int, int]]


def read_pattern(pattern: Any, where: str, *, dot_is_all: bool = False) -> Tree:
    """The tree of a pattern that stands at `where`; with `dot_is_all` its dots are line breaks too.

    Raises InvalidRequest.
    """
    if not isinstance(pattern, str):
        raise InvalidRequest(
            f"Invalid type for '{where}': expected a pattern, a string.", code="invalid_type", param=where
        )
    if len(pattern) > MAX_PATTERN_CHARS:
        raise _refusal(pattern, where, f"It has {len(pattern)} characters, at most {MAX_PATTERN_CHARS} are allowed")
    try:
        with warnings.catch_warnings(action="ignore"):  # of what other regexes mean otherwise: it is written anew
            parsed = _parser.parse(_NAMED.sub("(?P<", pattern))
        tree = _tree(parsed, dot_is_all)
        _check(tree, pattern, where, 0)
    except (re.error, OverflowError) as error:
        raise _refusal(pattern, where, f"It is malformed, or not of the common kind: {error}") from None
    except RecursionError:
        raise _refusal(pattern, where, f"Its groups are nested too deeply, at most {MAX_DEPTH} are allowed") from None
    if parsed.state.flags & ~re.UNICODE:
        raise _refusal(pattern, where, "Flags can't be held, write classes such as [aA]")
    try:
        weigh(tree, {})
    except ValueError as error:
        raise _refusal(pattern, where, str(error)) from None
    return tree


def _tree(parsed: Any, dot_is_all: bool) -> Tree:
    """The parser's own objects as plain lists."""
    tree = [(str(name), _plain(argument, dot_is_all)) for name, argument in parsed]
    return [("IN", [["RANGE", [0, LAST_CHARACTER]]]) if dot_is_all and each[0] == "ANY" else each for each in tree]


def _plain(argument: Any, dot_is_all: bool) -> Any:
    if hasattr(argument, "data"):
        return _tree(argument.data, dot_is_all)
    if isinstance(argument, (tuple, list)):
        return [_plain(each, dot_is_all) for each in cast("Iterable[Any]", argument)]
    if argument is None or type(argument) is int:
        return argument
    return MOST if argument == _parser.MAXREPEAT else str(argument)


def _check(tree: Tree, pattern: str, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError
    for name, argument in tree:
        if name in REPEATS:
            if argument[0] > MAX_REPEATS or MAX_REPEATS < argument[1] < MOST:
                raise _refusal(pattern, where, f"It repeats more than {MAX_REPEATS} times")
        elif name == "SUBPATTERN":
            if argument[1] or argument[2]:
                raise _refusal(pattern, where, "Flags can't be held, write classes such as [aA]")
        elif name not in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "BRANCH"):
            raise _refusal(pattern, where, "Lookaround, references to groups and the like can't be held")
        if name == "IN" and not ranges_of(name, argument):
            raise _refusal(pattern, where, "A class in it has no characters")
        for each in inner_trees(name, argument):
            _check(each, pattern, where, depth + 1)


def inner_trees(name: str, argument: Any) -> list[Tree]:
    """The trees that an operation has in it."""
    if name in REPEATS:
        return [argument[2]]
    return [argument[3]] if name == "SUBPATTERN" else argument[1] if name == "BRANCH" else []


Weight = tuple[int, bool]
"""The largest product of counts inside one another, and whether something marks off what is counted: a character of
its own, besides what is repeated or a choice.
"""


def weigh(tree: Tree, named: Mapping[str, Weight]) -> Weight:
    """The weight of a tree; of the names in it, by those that are `named`. Raises ValueError for too large a one."""
    heaviest, marked_off = 1, False
    for name, argument in tree:
        if name == "RULE":
            weight, marked = named.get(argument, (1, True))
        else:
            below = [weigh(each, named) for each in inner_trees(name, argument)]
            weight = max((each for each, _ in below), default=1)
            marked = below[0][1] if name == "SUBPATTERN" else name not in (*REPEATS, "BRANCH", "AT")
            if name in REPEATS:
                count = max(argument[0], 1 if argument[1] == MOST else argument[1])
                limit = MAX_NESTED if below[0][1] else MAX_LOOSE
                if min(count, weight) > 1 and count * weight > limit:
                    raise ValueError(f"Counts inside counts may come to {limit} here")
                weight *= count
        heaviest, marked_off = max(heaviest, weight), marked_off or marked
    return heaviest, marked_off


def _refusal(pattern: str, where: str, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"The pattern can't be held: '{where}' = {shown(pattern)}. {reason}.", code="invalid_pattern", param=where
    )


def whole(pattern: Any, where: str) -> str:
    """A pattern that a whole text has to match, written anew. Raises InvalidRequest."""
    tree = read_pattern(pattern, where)
    return _joined([_written(_bare(branch, pattern, where)[0], _regex) for branch in _branches(tree)])


def anchored(pattern: Any, where: str) -> str:
    """A JSON schema's pattern, which may match anywhere in a string, as one that matches all of it, with its anchors.

    The engine writes what it matches between quotes as it is. So a character that has to be escaped there can't be
    asked for. Raises InvalidRequest.
    """
    branches: list[str] = []
    for branch in _branches(read_pattern(pattern, where)):
        inner, begins, ends = _bare(branch, pattern, where)
        _check_json(inner, pattern, where)
        branches.append(f"{'' if begins else ANYTHING}{_written(inner, _regex)}{'' if ends else ANYTHING}")
    return f"^{_joined(branches)}$"


ANYTHING = r"[\s\S]*"


def _joined(branches: list[str]) -> str:
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _branches(tree: Tree) -> list[Tree]:
    if len(tree) == 1 and tree[0][0] == "BRANCH":
        return tree[0][1][1]
    if len(tree) == 1 and tree[0][0] == "SUBPATTERN":
        return _branches(tree[0][1][3])
    return [tree]


def _bare(tree: Tree, pattern: str, where: str) -> tuple[Tree, bool, bool]:
    """A branch without its anchors, and whether it had one at its beginning and at its end."""
    begins = bool(tree) and tree[0] == ("AT", "AT_BEGINNING")
    ends = bool(tree) and tree[-1] == ("AT", "AT_END")
    inner = tree[int(begins) : len(tree) - int(ends)]
    if has_anchors(inner):
        raise _refusal(pattern, where, "Anchors can be held only at its beginning and at its end")
    return inner, begins, ends


def has_anchors(tree: Tree) -> bool:
    """Whether a tree has an anchor anywhere."""
    return any(
        name == "AT" or any(has_anchors(each) for each in inner_trees(name, argument)) for name, argument in tree
    )


def _check_json(tree: Tree, pattern: str, where: str) -> None:
    for name, argument in tree:
        if name == "LITERAL" and (argument < 32 or argument in (34, 92)):
            raise _refusal(pattern, where, "A quote, a backslash or a control character can't be held outside a class")
        for each in inner_trees(name, argument):
            _check_json(each, pattern, where)


def _regex(codes: Ranges) -> str:
    """A class as a regex."""
    if codes == [(0, LAST_CHARACTER)]:
        return r"[\s\S]"
    if codes[-1][1] == LAST_CHARACTER:  # the rest of all characters is written as what it leaves out
        return f"[^{''.join(_span(low, high) for low, high in _inverted(codes))}]"
    written = "".join(_span(low, high) for low, high in codes)
    return written if len(codes) == 1 and codes[0][0] == codes[0][1] else f"[{written}]"


def _span(low: int, high: int) -> str:
    return _escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}"


def _escaped(code: int) -> str:
    if 48 <= code <= 57 or 65 <= code <= 90 or 97 <= code <= 122 or code in (32, 95):
        return chr(code)
    if code < 32 or 127 <= code <= 0xFFFF:
        return f"\\u{code:04x}"
    return chr(code) if code > 127 else f"\\{chr(code)}"


def ebnf(tree: Tree) -> str:
    """A tree without anchors as an expression of xgrammar's EBNF."""
    return f"({' | '.join(_written(branch, _ebnf) for branch in _branches(tree))})"


def _ebnf(codes: Ranges) -> str:
    return "[" + "".join(f"\\U{low:08X}-\\U{high:08X}" for low, high in codes) + "]"


def _written(tree: Tree, one: Callable[[Ranges], str]) -> str:
    """A tree written out, `one` writing a character of some ranges."""
    regex = one is _regex
    written = "".join if regex else " ".join
    pieces: list[str] = []
    for name, argument in tree:
        if name in REPEATS:
            inner = _written(argument[2], one)
            pieces.append(f"{_group(inner, regex=regex)}{_times(argument[0], argument[1])}")
        elif name == "SUBPATTERN":
            pieces.append(_group(_written(argument[3], one), regex=regex))
        elif name == "BRANCH":
            bar = "|" if regex else " | "
            pieces.append(_group(bar.join(_written(branch, one) for branch in argument[1]), regex=regex))
        elif name == "RULE":
            pieces.append(argument)
        else:
            pieces.append(one(ranges_of(name, argument)))
    return written(pieces) if pieces or regex else '""'


def _group(inner: str, *, regex: bool) -> str:
    return f"(?:{inner})" if regex else f"({inner})"


def _times(least: int, most: int) -> str:
    unbounded = most >= MOST
    simple = {(0, True): "*", (1, True): "+"}.get((least, unbounded))
    if simple or (least, most) == (0, 1):
        return simple or "?"
    return f"{{{least},}}" if unbounded else f"{{{least},{most}}}"


def ranges_of(name: str, argument: Any) -> Ranges:
    """The characters that one operation matches."""
    if name == "LITERAL":
        return [(argument, argument)]
    if name == "NOT_LITERAL":
        return _inverted([(argument, argument)])
    if name == "ANY":
        return _inverted([(10, 10)])
    ranges: Ranges = []
    negated = bool(argument) and argument[0][0] == "NEGATE"
    for kind, value in argument[1 if negated else 0 :]:
        if kind == "CATEGORY":
            category = value.removeprefix("CATEGORY_").removeprefix("UNI_")
            absent = category.startswith("NOT_")
            found = _CATEGORIES[category.removeprefix("NOT_")]
            ranges += _inverted(found) if absent else found
        else:
            ranges.append((value[0], value[1]) if kind == "RANGE" else (value, value))
    return _inverted(ranges) if negated else _merged(ranges)


def _merged(ranges: Ranges) -> Ranges:
    merged: Ranges = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return merged


def _inverted(ranges: Ranges) -> Ranges:
    left: Ranges = []
    begin = 0
    for low, high in _merged(ranges):
        if low > begin:
            left.append((begin, low - 1))
        begin = high + 1
    return [*left, (begin, LAST_CHARACTER)] if begin <= LAST_CHARACTER else left
