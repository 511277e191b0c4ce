"""Regular expressions that can be enforced: read into trees, and written again.

Python's own parser reads patterns, and matches nothing here: a pattern never runs where it could run for ever. Parts
that aren't regular, or that xgrammar ignores (lookaround, anchors in the middle), are refused. Patterns are written
again so that engine and validator mean the same by them.
"""

import re
import string
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple, cast

from service.errors import InvalidRequest, brief

MAX_PATTERN_CHARS = 2048
"""Read, checked and written in one go: 30 ms where it is all groups."""
MAX_REPEATS = 1024
"""The largest count in a pattern; the engine unrolls it, in a time that grows with its square."""

MAX_REPEATS_IN_JSON = 128
"""The largest count in a pattern of a JSON schema. From 129 on xgrammar 0.2.8 fails with an error of its own, unless
its cache is off, and vLLM has no way to switch that off; we can only set its size.
"""

MAX_NESTED = 4096
"""The largest product of counts inside one another."""

MAX_LOOSE = 16
"""The same where nothing marks off the counted part, as in `(a{1,4}){1,4}`: 64 of those take an engine 25 seconds."""

MAX_DEPTH = 50
"""The deepest nesting of groups."""

_parser: Any = import_module("re._parser")

MOST = int(_parser.MAXREPEAT)
"""The count that stands for no bound of a repetition."""

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

Ranges = tuple[tuple[int, int], ...]
"""Characters, from the first to the last of each range, in their order."""

CLASSES_CACHED = 256

MAX_SIZE = 32_768
"""The largest size of a schema's patterns, once a validator has written their counts out: 20 ms and 3 MB."""

WIDE = 12
"""The size of a character that may be one beyond ASCII, as a validator looks at bytes."""


def read_pattern(pattern: Any, where: str, *, dot_is_all: bool = False) -> Tree:
    """The tree of a pattern that stands at `where`; with `dot_is_all` its dots are line breaks too.

    Raises InvalidRequest.
    """
    if not isinstance(pattern, str):
        raise InvalidRequest(
            f"Invalid type for '{where}': expected a pattern, a string.", code="invalid_type", param=where
        )
    if len(pattern) > MAX_PATTERN_CHARS:
        raise refusal(pattern, where, f"It has {len(pattern)} characters, at most {MAX_PATTERN_CHARS} are allowed")
    try:
        return _read(pattern, dot_is_all)
    except (re.error, OverflowError) as error:
        raise refusal(pattern, where, f"It is malformed, or not of the common kind: {error}") from None
    except ValueError as error:
        raise refusal(pattern, where, str(error)) from None
    except RecursionError:
        raise refusal(pattern, where, f"Its groups are nested too deeply, at most {MAX_DEPTH} are allowed") from None


@lru_cache(maxsize=16)
def _read(pattern: str, dot_is_all: bool) -> Tree:
    parsed = _parse(pattern)
    tree = _tree(parsed, dot_is_all)
    _check(tree, 0)
    if parsed.state.flags & ~re.UNICODE:
        raise ValueError("Flags can't be enforced, write classes such as [aA]")
    weigh(tree, {})
    if size(tree) > MAX_SIZE:
        raise ValueError(f"Its characters, with all counts, come to more than {MAX_SIZE}")
    return tree


def unchecked_tree(pattern: str) -> Tree:
    """The tree of a pattern without any check or limit. Raises re.error, ValueError, OverflowError, RecursionError."""
    return _tree(_parse(pattern), dot_is_all=False)


def _parse(pattern: str) -> Any:
    with warnings.catch_warnings(action="ignore"):  # of meanings that differ in other regexes: it is written anew
        return _parser.parse(_NAMED.sub("(?P<", pattern))


def size(tree: Tree) -> int:
    """The characters of a pattern with its counts written out; each one beyond ASCII counts as a dozen."""
    total = 0
    for name, argument in tree:
        inner = sum(size(each) for each in inner_trees(name, argument))
        if name in REPEATS:
            total += inner * max(argument[0] + 1 if argument[1] == MOST else argument[1], 1)
        elif inner or name in ("SUBPATTERN", "BRANCH", "AT"):
            total += inner
        else:
            total += 1 if name == "LITERAL" or (name == "IN" and argument[-1][1] < 128) else WIDE
    return total


def _tree(parsed: Any, dot_is_all: bool) -> Tree:
    """The parser's own objects as plain lists, classes as their ranges."""
    tree: Tree = []
    for operation, argument in parsed:
        name = str(operation)
        if name == "IN":
            tree.append((name, _class(tuple(argument))))
        elif name == "ANY" and dot_is_all:
            tree.append(("IN", ((0, LAST_CHARACTER),)))
        else:
            tree.append((name, _plain(argument, dot_is_all)))
    return tree


def _plain(argument: Any, dot_is_all: bool) -> Any:
    if type(argument) is int or argument is None:
        return argument
    if hasattr(argument, "data"):
        return _tree(argument.data, dot_is_all)
    if isinstance(argument, (tuple, list)):
        return [_plain(each, dot_is_all) for each in cast("Iterable[Any]", argument)]
    return MOST if argument == _parser.MAXREPEAT else str(argument)


@lru_cache(maxsize=CLASSES_CACHED)
def _class(parts: tuple[tuple[Any, Any], ...]) -> Ranges:
    """The characters of a class."""
    ranges: list[tuple[int, int]] = []
    negated = False
    for operation, value in parts:
        kind = str(operation)
        if kind == "NEGATE":
            negated = True
        elif kind == "CATEGORY":
            category = str(value).removeprefix("CATEGORY_").removeprefix("UNI_")
            found = _CATEGORIES[category.removeprefix("NOT_")]
            ranges += invert(found) if category.startswith("NOT_") else found
        else:
            ranges.append((value[0], value[1]) if kind == "RANGE" else (value, value))
    return invert(ranges) if negated else _merge(ranges)


def _check(tree: Tree, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise RecursionError
    for name, argument in tree:
        if name in REPEATS:
            if _largest_count(argument) > MAX_REPEATS:
                raise ValueError(f"It repeats more than {MAX_REPEATS} times")
        elif name == "SUBPATTERN":
            if argument[1] or argument[2]:
                raise ValueError("Flags can't be enforced, write classes such as [aA]")
        elif name not in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT", "BRANCH"):
            raise ValueError("Lookaround, references to groups and the like can't be enforced")
        if name == "IN" and not argument:
            raise ValueError("A class in it has no characters")
        for each in inner_trees(name, argument):
            _check(each, depth + 1)


def _largest_count(argument: Sequence[Any]) -> int:
    """The larger bound of a repetition, where it has two."""
    return argument[0] if argument[1] == MOST else argument[1]


def inner_trees(name: str, argument: Any) -> list[Tree]:
    """The trees that an operation has in it."""
    if name in REPEATS:
        return [argument[2]]
    return [argument[3]] if name == "SUBPATTERN" else argument[1] if name == "BRANCH" else []


def operations(tree: Tree) -> Iterator[tuple[str, Any]]:
    """All operations of a tree, and of the trees in it."""
    for name, argument in tree:
        yield name, argument
        for inner in inner_trees(name, argument):
            yield from operations(inner)


Weight = tuple[int, bool]
"""The largest product of counts inside one another, and whether something marks off the counted part: a character of
its own, besides a repetition or a choice.
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


def refusal(pattern: str, where: str, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"The pattern can't be enforced: '{where}' = {brief(pattern)}. {reason}.",
        code="invalid_pattern",
        param=where,
    )


def has_anchors(tree: Tree) -> bool:
    """Whether a tree has an anchor anywhere."""
    return any(name == "AT" for name, _ in operations(tree))


def ranges_of(name: str, argument: Any) -> Ranges:
    """The characters that one operation matches."""
    if name == "LITERAL":
        return ((argument, argument),)
    if name == "NOT_LITERAL":
        return invert([(argument, argument)])
    return invert([(10, 10)]) if name == "ANY" else argument


def _merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def invert(ranges: Iterable[tuple[int, int]]) -> Ranges:
    left: list[tuple[int, int]] = []
    begin = 0
    for low, high in _merge(ranges):
        if low > begin:
            left.append((begin, low - 1))
        begin = high + 1
    return (*left, (begin, LAST_CHARACTER)) if begin <= LAST_CHARACTER else tuple(left)


def enforced_regex(pattern: Any, where: str) -> str:
    """The pattern at the parameter `where`, which has to match a whole text, written anew.

    Raises InvalidRequest.
    """
    tree = read_pattern(pattern, where)
    return _join([_write(_bare(branch, pattern, where)[0], _regex) for branch in _branches(tree)])


class Anchored(NamedTuple):
    """A pattern of whole strings. `exact`: all its matches have the lengths that were asked for. `grown` is the growth
    of its `size` over the original pattern's.
    """

    pattern: str
    exact: bool
    grown: int


def anchor(pattern: Any, where: str) -> str:
    """A JSON schema's pattern, which may match anywhere in a string, as one that matches all of it, with its anchors.

    The engine writes a match between quotes as it is. So a pattern can't ask for a character that has to be escaped
    there. Raises InvalidRequest.
    """
    return anchored_within(pattern, where, 0, None).pattern


def anchored_within(pattern: Any, where: str, least: int, most: int | None) -> Anchored:
    """The same for strings of `least` to `most` characters. A branch that one repeated character makes longer or
    shorter gets these lengths as its count, and one that is never so long is left out. Raises InvalidRequest.
    """
    branches: list[str] = []
    exact, grown = True, 0
    tree = read_pattern(pattern, where)
    if any(name in REPEATS and _largest_count(argument) > MAX_REPEATS_IN_JSON for name, argument in operations(tree)):
        raise refusal(pattern, where, f"It repeats more than {MAX_REPEATS_IN_JSON} times")
    for branch in _branches(tree):
        inner, begins, ends = _bare(branch, pattern, where)
        if any(name == "LITERAL" and (each < 32 or each in (34, 92)) for name, each in operations(inner)):
            advice = "A quote, a backslash or a control character can't be enforced outside a class"
            raise refusal(pattern, where, advice)
        whole = begins and ends
        low, high = _lengths(inner)
        if (most is not None and low > most) or (whole and high is not None and high < least):
            continue
        if whole and (within := _within(inner, least, most)) is not None:
            grown += size(within) - size(inner)
            inner = within
        elif low < least or not (most is None or (whole and high is not None and high <= most)):
            exact = False
        branches.append(f"{'' if begins else ANYTHING}{_write(inner, _regex)}{'' if ends else ANYTHING}")
    if not branches:
        raise refusal(pattern, where, "Nothing that it matches has the lengths beside it")
    return Anchored(f"^{_join(branches)}$", exact, grown)


def _within(tree: Tree, least: int, most: int | None) -> Tree | None:
    """The tree of the matches with `least` to `most` characters, where one count decides the length; else None."""
    bounds = [_lengths([each]) for each in tree]
    varying = [place for place, (low, high) in enumerate(bounds) if low != high]
    if len(varying) != 1 or tree[varying[0]][0] not in REPEATS:
        return None
    [place] = varying
    name, (low, high, inner) = tree[place]
    fixed = _lengths(tree)[0] - low
    low = max(low, least - fixed)
    high = high if most is None else min(high, most - fixed)
    if _lengths(inner) != (1, 1) or _largest_count((low, high)) > MAX_REPEATS_IN_JSON:
        return None
    return [*tree[:place], (name, [low, high, inner]), *tree[place + 1 :]]


def _lengths(tree: Tree) -> tuple[int, int | None]:
    """The least and the most characters of a tree's matches, None for no bound."""
    least, most = 0, cast("int | None", 0)
    for name, argument in tree:
        below = [_lengths(each) for each in inner_trees(name, argument)] or [(int(name != "AT"),) * 2]
        low, high = min(each for each, _ in below), _largest([each for _, each in below])
        if name in REPEATS:
            low *= argument[0]
            high = 0 if high == 0 else None if high is None or argument[1] == MOST else high * argument[1]
        least, most = least + low, None if most is None or high is None else most + high
    return least, most


def _largest(bounds: Sequence[int | None]) -> int | None:
    """The largest of some bounds, None where one of them is none."""
    known = [each for each in bounds if each is not None]
    return max(known) if len(known) == len(bounds) else None


ANYTHING = r"[\s\S]*"


def _join(branches: list[str]) -> str:
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
        raise refusal(pattern, where, "Anchors can be enforced only at its beginning and at its end")
    return inner, begins, ends


@lru_cache(maxsize=CLASSES_CACHED)
def _regex(codes: Ranges) -> str:
    """A class as a regex."""
    if codes == ((0, LAST_CHARACTER),):
        return r"[\s\S]"
    if codes[-1][1] == LAST_CHARACTER:  # a class up to the last character is written as its complement
        return f"[^{''.join(_span(low, high) for low, high in invert(codes))}]"
    written = "".join(_span(low, high) for low, high in codes)
    return written if len(codes) == 1 and codes[0][0] == codes[0][1] else f"[{written}]"


def _span(low: int, high: int) -> str:
    return _escape(low) if low == high else f"{_escape(low)}-{_escape(high)}"


def _escape(code: int) -> str:
    if 48 <= code <= 57 or 65 <= code <= 90 or 97 <= code <= 122 or code in (32, 60, 62, 95):
        return chr(code)
    if code < 32 or 127 <= code <= 0xFFFF:
        return f"\\u{code:04x}"
    return chr(code) if code > 127 else f"\\{chr(code)}"


def ebnf(tree: Tree) -> str:
    """A tree without anchors as an expression of xgrammar's EBNF."""
    return f"({' | '.join(_write(branch, _ebnf) for branch in _branches(tree))})"


@lru_cache(maxsize=CLASSES_CACHED)
def _ebnf(codes: Ranges) -> str:
    return "[" + "".join(f"\\U{low:08X}-\\U{high:08X}" for low, high in codes) + "]"


def _write(tree: Tree, one: Callable[[Ranges], str]) -> str:
    """A tree written out, `one` writing a character of some ranges."""
    regex = one is _regex
    bar, opening = ("|", "(?:") if regex else (" | ", "(")
    pieces: list[str] = []
    for name, argument in tree:
        if name == "LITERAL" and not regex and chr(argument) in _PLAIN:
            before = pieces.pop()[:-1] if pieces and pieces[-1].endswith('"') else '"'
            pieces.append(f'{before}{chr(argument)}"')
        elif name in REPEATS:
            pieces.append(f"{opening}{_write(argument[2], one)}){_times(argument[0], argument[1])}")
        elif name == "SUBPATTERN":
            pieces.append(f"{opening}{_write(argument[3], one)})")
        elif name == "BRANCH":
            pieces.append(f"{opening}{bar.join(_write(branch, one) for branch in argument[1])})")
        elif name == "RULE":
            pieces.append(argument)
        else:
            pieces.append(one(ranges_of(name, argument)))
    return ("" if regex else " ").join(pieces) if pieces or regex else '""'


_PLAIN = frozenset(string.ascii_letters + string.digits + " _-+*/=<>,.;:!?#%&@$^~|(){}")
"""The characters that stand for themselves in a text of xgrammar's EBNF."""


_SIGNS = {(0, MOST): "*", (1, MOST): "+", (0, 1): "?"}


def _times(least: int, most: int) -> str:
    return _SIGNS.get((least, most)) or f"{{{least},{'' if most == MOST else most}}}"
