"""Regular expressions that can be held: read once, written again so that engine and validator mean the same by them.

Read by Python's own parser of patterns, which matches nothing here: a pattern never runs where it could run for ever.
What isn't regular, or what xgrammar passes over in silence (lookaround, anchors in the middle), is refused.
"""

import re
from collections.abc import Callable, Iterable
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
_NEGATED = {
    "DIGIT": [(0, 47), (58, LAST_CHARACTER)],
    "WORD": [(0, 47), (58, 64), (91, 94), (96, 96), (123, LAST_CHARACTER)],
    "SPACE": [(0, 8), (14, 31), (33, LAST_CHARACTER)],
}
_POSITIVE = {
    "DIGIT": [(48, 57)],
    "WORD": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "SPACE": [(9, 13), (32, 32)],
}
Ranges = list[tuple[int, int]]


def read_pattern(pattern: Any, where: str, *, flags: int = 0) -> Tree:
    """The tree of a pattern that stands at `where`. Raises InvalidRequest."""
    if not isinstance(pattern, str):
        raise InvalidRequest(
            f"Invalid type for '{where}': expected a pattern, a string.", code="invalid_type", param=where
        )
    if len(pattern) > MAX_PATTERN_CHARS:
        raise _refusal(pattern, where, f"It has {len(pattern)} characters, at most {MAX_PATTERN_CHARS} are allowed")
    try:
        parsed = _parser.parse(_NAMED.sub("(?P<", pattern), flags)
        tree = _tree(parsed)
    except (re.error, OverflowError) as error:
        raise _refusal(pattern, where, f"It is malformed, or not of the common kind: {error}") from None
    except RecursionError:
        raise _refusal(pattern, where, f"Its groups are nested too deeply, at most {MAX_DEPTH} are allowed") from None
    unknown = parsed.state.flags & ~(re.UNICODE | re.IGNORECASE | re.DOTALL)
    if unknown or parsed.state.flags & re.IGNORECASE:
        raise _refusal(pattern, where, "Flags can't be held, write classes such as [aA]")
    _check(tree, pattern, where, 0)
    _weigh(tree, pattern, where)
    return tree


def _tree(parsed: Any) -> Tree:
    """The parser's own objects as plain lists."""
    return [(str(name), _plain(argument)) for name, argument in parsed]


def _plain(argument: Any) -> Any:
    if hasattr(argument, "data"):
        return _tree(argument.data)
    if isinstance(argument, (tuple, list)):
        return [_plain(each) for each in cast("Iterable[Any]", argument)]
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
            _check(argument[2], pattern, where, depth + 1)
        elif name == "SUBPATTERN":
            if argument[1] or argument[2]:
                raise _refusal(pattern, where, "Flags can't be held, write classes such as [aA]")
            _check(argument[3], pattern, where, depth + 1)
        elif name == "BRANCH":
            for branch in argument[1]:
                _check(branch, pattern, where, depth + 1)
        elif name not in ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT"):
            raise _refusal(pattern, where, "Lookaround, references to groups and the like can't be held")


def _weigh(tree: Tree, pattern: str, where: str) -> int:
    """The largest product of counts inside one another in a tree."""
    heaviest = 1
    for name, argument in tree:
        if name in REPEATS:
            count = max(argument[0], 1 if argument[1] == MOST else argument[1])
            inner = _weigh(argument[2], pattern, where)
            limit = MAX_NESTED if _marked_off(argument[2]) else MAX_LOOSE
            if min(count, inner) > 1 and count * inner > limit:
                raise _refusal(pattern, where, f"Counts inside counts may come to {limit} here")
            heaviest = max(heaviest, count * inner)
        elif name == "SUBPATTERN":
            heaviest = max(heaviest, _weigh(argument[3], pattern, where))
        elif name == "BRANCH":
            heaviest = max(heaviest, *(_weigh(branch, pattern, where) for branch in argument[1]))
    return heaviest


def _marked_off(tree: Tree) -> bool:
    """Whether a tree has a character of its own, besides what is repeated or a choice."""
    return any(
        _marked_off(argument[3]) if name == "SUBPATTERN" else name not in (*REPEATS, "BRANCH", "AT")
        for name, argument in tree
    )


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
    if "'AT'" in repr(inner):
        raise _refusal(pattern, where, "Anchors can be held only at its beginning and at its end")
    return inner, begins, ends


def _check_json(tree: Tree, pattern: str, where: str) -> None:
    for name, argument in tree:
        if name == "LITERAL" and (argument < 32 or argument in (34, 92)):
            raise _refusal(pattern, where, "A quote, a backslash or a control character can't be held outside a class")
        if name in REPEATS:
            _check_json(argument[2], pattern, where)
        elif name == "SUBPATTERN":
            _check_json(argument[3], pattern, where)
        elif name == "BRANCH":
            for branch in argument[1]:
                _check_json(branch, pattern, where)


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
    """A pattern as an expression of xgrammar's EBNF."""
    branches = [_written([each for each in branch if each[0] != "AT"], _ebnf) for branch in _branches(tree)]
    return f"({' | '.join(branches)})"


def _ebnf(codes: Ranges) -> str:
    return "[" + "".join(f"{_hex(low)}-{_hex(high)}" for low, high in codes) + "]"


def _hex(code: int) -> str:
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


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
            ranges += (_NEGATED if absent else _POSITIVE)[category.removeprefix("NOT_")]
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
