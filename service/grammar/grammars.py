"""The grammars of custom tools: the regexes and Lark grammars that can be enforced, and their form for an engine.

A Lark grammar becomes trees (lark.py), one for each rule and terminal, with the ignored terminals behind each
terminal. From these comes xgrammar's EBNF, as long as the grammar. It matches the same texts as lark; lark's rules for
a conflict of terminals have no part in that.
"""

import re
from collections import deque
from collections.abc import Generator, Mapping, Sequence

from service.errors import InvalidRequest, brief
from service.grammar.lark import COMMON, Definitions, read_lark
from service.grammar.regex import MOST, Tree, Weight, ebnf, operations, weigh
from service.grammar.soundness import MAX_SYMBOLS, check_rules

MAX_GRAMMAR_CHARS = 8_192
"""The longest grammar; one of a single huge rule takes some 8 ms in a step, 15 at worst."""

MAX_RULES = 1024
"""The most rules and terminals of a grammar; each different use of a template counts."""


def enforced_grammar(lark: str, where: str) -> Generator[None, None, str]:
    """The Lark grammar at the parameter `where` in xgrammar's EBNF; read in steps.

    Raises InvalidRequest.
    """
    if len(lark) > MAX_GRAMMAR_CHARS:
        raise _refusal(lark, where, f"It has {len(lark)} characters, at most {MAX_GRAMMAR_CHARS} are allowed")
    try:
        trees = yield from _trees(lark)
        check_rules(trees)
    except InvalidRequest as refused:  # a terminal's pattern, which has no place of its own
        raise _refusal(lark, where, refused.message) from None
    except (re.error, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise _refusal(lark, where, f"It can't be read: {reason[:200]}") from None
    lines: list[str] = []
    for place, (name, tree) in enumerate(trees.items()):
        if place % 50 == 0:
            yield
        lines.append(f"{name} ::= {ebnf(tree)}\n")
    return "".join(lines)


def _trees(lark: str) -> Generator[None, None, Mapping[str, Tree]]:
    """The trees of a grammar, "root" first. Raises ValueError, re.error and InvalidRequest."""
    definitions = read_lark(lark)
    yield
    trees = _Trees(definitions).trees()
    yield
    _weigh(trees)
    yield
    return trees


class _Trees:
    """The trees of a grammar's used rules and terminals, by the names that an engine is told."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._names: dict[str, str] = {}
        self._waiting: deque[tuple[str, str, Mapping[str, Tree]]] = deque()
        self._behind: Tree = [("RULE", "skipped")] if definitions.ignored else []
        self._trees: dict[str, Tree] = {}
        self._size = 0

    def trees(self) -> dict[str, Tree]:
        """All of them, "root" first. Raises ValueError and InvalidRequest."""
        if "start" not in self._definitions.named:
            raise ValueError("it has no rule 'start'")
        self._trees["root"] = [*self._behind, *self._reference("start", (), terminal=False)]
        if self._behind:
            branches = [self._definition(tree, {}, terminal=True) for tree in self._definitions.ignored]
            self._trees["skipped"] = [("MAX_REPEAT", [0, MOST, [("BRANCH", [None, branches])]])]
        while self._waiting:
            name, key, arguments = self._waiting.popleft()
            self._trees[name] = self._definition(
                self._definitions.named[key].tree, arguments, terminal=_is_terminal(key)
            )
        return self._trees

    def _reference(self, key: str, arguments: Sequence[Tree], *, terminal: bool) -> Tree:
        """The reference to a rule, a terminal, or a template with its arguments."""
        if key not in self._definitions.named:
            raise ValueError(f"{key[:40]!r} is used and not defined")
        params = self._definitions.named[key].params
        if len(params) != len(arguments):
            raise ValueError(f"{key[:40]!r} has {len(params)} parameters, not {len(arguments)}")
        if terminal and not _is_terminal(key):
            raise ValueError(f"the rule {key[:40]!r} stands in a terminal")
        use = key if not arguments else f"{key}{{{arguments!r}}}"
        if use not in self._names:
            if len(self._names) == MAX_RULES:
                raise ValueError(f"it comes to more than {MAX_RULES} rules and terminals")
            name = f"t{key.removeprefix(COMMON)}" if _is_terminal(key) else f"r{len(self._names)}"
            self._names[use] = f"{name}_" if key.startswith(COMMON) else name
            self._waiting.append((self._names[use], key, dict(zip(params, arguments, strict=True))))
        behind = [] if terminal or not _is_terminal(key) else self._behind
        return [("RULE", self._names[use]), *behind]

    def _definition(self, tree: Tree, arguments: Mapping[str, Tree], *, terminal: bool) -> Tree:
        """The tree of a definition with its names resolved. In a rule, the ignored terminals follow each terminal."""
        written: Tree = []
        for kind, inner in tree:
            self._size += len(inner) if kind == "TEXT" else 1
            if self._size > MAX_SYMBOLS:
                raise ValueError(f"with its templates written out it has more than {MAX_SYMBOLS} symbols")
            if kind == "NAME":
                written += arguments[inner] if inner in arguments else self._reference(inner, (), terminal=terminal)
            elif kind == "USE":
                given = [self._one(self._definition(each, arguments, terminal=terminal)) for each in inner[1]]
                written += self._reference(inner[0], given, terminal=terminal)
            elif kind == "TEXT":
                written.append(("SUBPATTERN", [None, 0, 0, inner]))
                written += [] if terminal else self._behind
            elif kind == "BRANCH":
                branches = [self._definition(each, arguments, terminal=terminal) for each in inner[1]]
                written.append(("BRANCH", [None, branches]))
            else:  # the last argument of a repetition or a group is its content
                below = self._definition(inner[-1], arguments, terminal=terminal)
                written.append((kind, [*inner[:-1], below]))
        return written

    def _one(self, tree: Tree) -> Tree:
        """A template's argument as one name, however often the template writes it."""
        if len(tree) == 1 and tree[0][0] == "RULE":
            return tree
        use = repr(tree)
        if use not in self._names:
            self._names[use] = f"r{len(self._names)}"
            self._trees[self._names[use]] = tree
        return [("RULE", self._names[use])]


def _is_terminal(key: str) -> bool:
    return key.removeprefix(COMMON).isupper()


def _weigh(trees: Mapping[str, Tree]) -> None:
    """Check the counts inside counts, through all names, and that no terminal contains itself."""
    references = {name: [used for kind, used in operations(tree) if kind == "RULE"] for name, tree in trees.items()}
    weights: dict[str, Weight] = {}
    open_ones: set[str] = set()
    agenda = ["root"]
    while agenda:
        name = agenda[-1]
        if name in weights:
            agenda.pop()
        elif name in open_ones:
            weights[name] = weigh(trees[name], weights)
            agenda.pop()
        else:
            open_ones.add(name)
            for each in references[name]:
                if each not in open_ones:
                    agenda.append(each)
                elif each not in weights and name[0] == each[0] == "t":
                    raise ValueError(f"the terminal {each[1:41]!r} has itself in it")


def _refusal(value: str, where: str, reason: str) -> InvalidRequest:
    return InvalidRequest(
        f"The grammar can't be enforced: '{where}' = {brief(value)}. {reason}.",
        code="invalid_grammar",
        param=where,
    )
