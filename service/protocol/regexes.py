"""Regular expressions that can be held, written again so that engine and validator mean the same by them."""

import string
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from service.protocol.patterns import (
    CLASSES_CACHED,
    LAST_CHARACTER,
    MOST,
    REPEATS,
    Ranges,
    Tree,
    has_anchors,
    inner_trees,
    inverted,
    ranges_of,
    read_pattern,
    refusal,
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
        raise refusal(pattern, where, "Anchors can be held only at its beginning and at its end")
    return inner, begins, ends


def _check_json(tree: Tree, pattern: str, where: str) -> None:
    for name, argument in tree:
        if name == "LITERAL" and (argument < 32 or argument in (34, 92)):
            raise refusal(pattern, where, "A quote, a backslash or a control character can't be held outside a class")
        for each in inner_trees(name, argument):
            _check_json(each, pattern, where)


@lru_cache(maxsize=CLASSES_CACHED)
def _regex(codes: Ranges) -> str:
    """A class as a regex."""
    if codes == ((0, LAST_CHARACTER),):
        return r"[\s\S]"
    if codes[-1][1] == LAST_CHARACTER:  # the rest of all characters is written as what it leaves out
        return f"[^{''.join(_span(low, high) for low, high in inverted(codes))}]"
    written = "".join(_span(low, high) for low, high in codes)
    return written if len(codes) == 1 and codes[0][0] == codes[0][1] else f"[{written}]"


def _span(low: int, high: int) -> str:
    return _escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}"


def _escaped(code: int) -> str:
    if 48 <= code <= 57 or 65 <= code <= 90 or 97 <= code <= 122 or code in (32, 60, 62, 95):
        return chr(code)
    if code < 32 or 127 <= code <= 0xFFFF:
        return f"\\u{code:04x}"
    return chr(code) if code > 127 else f"\\{chr(code)}"


def ebnf(tree: Tree) -> str:
    """A tree without anchors as an expression of xgrammar's EBNF."""
    return f"({' | '.join(_written(branch, _ebnf) for branch in _branches(tree))})"


@lru_cache(maxsize=CLASSES_CACHED)
def _ebnf(codes: Ranges) -> str:
    return "[" + "".join(f"\\U{low:08X}-\\U{high:08X}" for low, high in codes) + "]"


def _written(tree: Tree, one: Callable[[Ranges], str]) -> str:
    """A tree written out, `one` writing a character of some ranges."""
    regex = one is _regex
    pieces: list[str] = []
    letters: list[str] = []
    for name, argument in tree:
        if name == "LITERAL" and not regex and chr(argument) in _PLAIN:
            letters.append(chr(argument))
            continue
        if letters:
            pieces.append(_quoted(letters))
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
    if letters:
        pieces.append(_quoted(letters))
    return ("" if regex else " ").join(pieces) if pieces or regex else '""'


_PLAIN = frozenset(string.ascii_letters + string.digits + " _-+*/=<>,.;:!?#%&@$^~|(){}")
"""The characters that stand for themselves in a text of xgrammar's EBNF."""


def _quoted(letters: list[str]) -> str:
    """The text, which is then empty for the next."""
    text = "".join(letters)
    letters.clear()
    return f'"{text}"'


def _group(inner: str, *, regex: bool) -> str:
    return f"(?:{inner})" if regex else f"({inner})"


def _times(least: int, most: int) -> str:
    unbounded = most >= MOST
    simple = {(0, True): "*", (1, True): "+"}.get((least, unbounded))
    if simple or (least, most) == (0, 1):
        return simple or "?"
    return f"{{{least},}}" if unbounded else f"{{{least},{most}}}"
