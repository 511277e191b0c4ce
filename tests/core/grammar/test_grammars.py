"""Regexes and Lark grammars of custom tools: what can be enforced, in which words, and which texts match."""

import re
from contextlib import suppress
from functools import cache
from pkgutil import get_data
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lark import Lark
from lark.exceptions import LarkError

from service.errors import InvalidRequest
from service.grammar.grammars import enforced_grammar
from service.grammar.regex import enforced_regex
from service.steps import in_one_go

WHERE = "tools[3].format.definition"
SUM = """
start: NUMBER ("+" NUMBER)*
%import common.INT -> NUMBER
%import common.WS
%ignore WS
"""
PATCH = r"""
start: "*** Begin Patch" LF hunk+ "*** End Patch" LF?
hunk: "*** Update File: " /(.+)/ LF change_line+
change_line: ("+" | "-" | " ") /(.*)/ LF
%import common.LF
"""
PATCHED = "*** Begin Patch\n*** Update File: a.py\n-x = 1\n+x = 2\n*** End Patch"


_SIGNS = re.compile(r'"[^"]*"|\[([^]]*)\]|\{(\d+),(\d*)\}|::=|[a-z]\w*')
MANY = 9
"""More than any text here repeats something."""


def _in_lark(sign: re.Match[str]) -> str:
    """A sign of EBNF in Lark's notation."""
    if sign[0][0] == "[":
        return f"/[{re.sub(r'.U(.{8})', lambda code: _letter(chr(int(code[1], 16))), sign[1])}]/"
    if sign[0][0] == "{":
        return f"~{sign[2]}..{sign[3] or MANY}"
    if sign[0][0] == '"':
        return sign[0] if len(sign[0]) > 2 else ""
    return {"::=": ":", "root": "start"}.get(sign[0], f"x{sign[0].encode().hex()}")


def _letter(letter: str) -> str:
    """A letter in a class of a pattern."""
    return f"\\{letter}" if letter in "\\]^-/[" else f"\\U{ord(letter):08X}"


@cache
def enforced(grammar: str) -> Lark:
    """The grammar that an engine gets."""
    return _oracle(_SIGNS.sub(_in_lark, in_one_go(enforced_grammar(grammar, WHERE))))


def matches(grammar: str, text: str) -> bool:
    return accepts(enforced(grammar), text)


@cache
def _oracle(grammar: str) -> Lark:
    return Lark(grammar, parser="earley", lexer="dynamic_complete")


def accepts(lark: Lark, text: str) -> bool:
    try:
        lark.parse(text)
    except LarkError:
        return False
    return True


def lark_library() -> list[str]:
    """The names of lark's library; its strings, which lark lets end at any quote, have a test of their own."""
    source = get_data("lark", "grammars/common.lark") or b""
    return [name for name in re.findall(r"^([A-Z]\w*) *:", source.decode(), re.MULTILINE) if name != "ESCAPED_STRING"]


SAMPLES = ["", "1", "12", "-1", "+1.5", ".5", "1.", "1e5", "1.5E-3", "e5", "a", "Z", "g", "F", "ab", "a1_", "_", " ",
           "\t ", "\n", "\r", "\r\n", "\f", "# a", "// a", "/* a\n */", "-- a", "//a\n"]  # fmt: skip
LIKE_LARK = [
    'start: "a"? "b"* ["a"]',
    'start: ("a" | "b" "a")~1..2 b\n!b.2: "b"+ -> bees\n  | "a"',
    'start: pair{A, "b"} | pair{"b", A}\npair{x, y}: x y | y [x]\nA: "a"',
    'start: A*\nA: B | "b" B~2\nB: "a".."a"',
    'start: "a" start "b" | // nothing more\n',
    'start: "a" B\nB: "b"\n%ignore A\nA: "a"',
    'start: "\\"" /[^"]/ "\\x22"i',
]


IRREGULAR = {
    "an empty class": r"[^\s\S]",
    "lookbehind": "(?<!a)b",
    "very deep groups": "(" * 1_000 + "a" + ")" * 1_000,
    "a large pattern": "[^a]{1000}" * 3,
}


@pytest.mark.parametrize("case", IRREGULAR)
def test_a_regex_that_cannot_be_held_is_refused_where_it_stands(case: str) -> None:
    with pytest.raises(InvalidRequest, match="The pattern can't be enforced") as refused:
        enforced_regex(IRREGULAR[case], WHERE)
    assert refused.value.param == WHERE


@given(
    st.sampled_from([r"\d{3}-\d{4}", "a|bc", "^(?:ab)*c?$", "[^ab]+", r"\w\s\S", "a.b", "(?P<n>a)+?", r"[\d_]{2,}"]),
    st.text("ab c_1-\n", max_size=8),
)
def test_a_regex_written_anew_matches_the_same_texts(pattern: str, text: str) -> None:
    anew = enforced_regex(pattern, WHERE)
    assert bool(re.fullmatch(anew, text)) == bool(re.fullmatch(pattern, text, re.ASCII))


REFUSED_GRAMMARS = {
    "a library": "%import python.NAME\nstart: NAME",
    "what the library lacks": "%import common.NOPE\nstart: NOPE",
    "a terminal that has itself in it": "start: A\nA: B\nB: A",
    "a rule in a terminal": 'start: A\nA: b\nb: "x"',
    "an anchor": "start: /^a/",
    "nothing, over and over": 'start: ("a"? "b"?)*',
    "a rule that is itself": 'start: s s\ns: s? s? "a"?',
    "a repetition backwards": 'start: "a"~3..2',
    "half a character": 'start: "\\ud800"',
}


@pytest.mark.parametrize("case", REFUSED_GRAMMARS)
def test_a_grammar_that_cannot_be_held_is_refused_where_it_stands(case: str) -> None:
    with pytest.raises(InvalidRequest, match="The grammar can't be enforced") as refused:
        in_one_go(enforced_grammar(REFUSED_GRAMMARS[case], WHERE))
    assert refused.value.param == WHERE


@pytest.mark.parametrize(
    ("grammar", "text", "right"),
    [
        ("start: ESCAPED_STRING\n%import common.ESCAPED_STRING", r'"a\"b\\"', True),
        ("start: ESCAPED_STRING\n%import common.ESCAPED_STRING", '"a"b"', False),
        (SUM, " 1 + 22+3 ", True),
        (PATCH, PATCHED, True),
        (PATCH, PATCHED[:-1], False),
        ('start: "a"i~2', "aA", True),
        ('start: "a" start "b" | "c"', "aaacbb", False),
        ('start: _list{"x"}\n_list{item}: item ("," item)*', "x,x", True),
        ("start: /a.b/", "a\nb", False),
        ("start: /a.b/s", "a\nb", True),
    ],
)
def test_a_text_is_checked_against_its_grammar(grammar: str, text: str, right: bool) -> None:
    assert matches(grammar, text) is right


GROWING = {
    "optionals": "start: " + '"a"? ' * 400,
    "terminals in terminals": "start: A0\n" + "".join(f"A{n}: A{n + 1} A{n + 1}\n" for n in range(200)) + 'A200: "x"',
    "templates in templates": 'start: a{a{a{a{a{a{"x"}}}}}}\na{x}: x x x x x x x x',
    "counts": "start: " + "/a{0,1000}/ " * 300,
    "a template of 1,500 words used 200 times": (
        "start: " + " ".join(f'a{{"{n}"}}' for n in range(200)) + "\na{x}: " + '"a" ' * 1_500 + "x"
    ),
    "an open text": 'start: "' + "\\\\" * 2_000,
    "counts in counts": 'start: ((("a"~250)~250)~250)~250',
}


@pytest.mark.parametrize("case", GROWING)
def test_no_grammar_takes_longer_than_its_length_says(case: str) -> None:
    began = process_time()
    with suppress(InvalidRequest):
        in_one_go(enforced_grammar(GROWING[case], WHERE))
    assert process_time() - began < 1


@pytest.mark.parametrize("name", lark_library())
def test_what_may_be_imported_means_what_it_means_to_lark(name: str) -> None:
    lark = Lark(f"start: X\n%import common.{name} -> X", parser="earley", lexer="dynamic_complete")
    for text in SAMPLES:
        assert matches(f"start: X\n%import common.{name} -> X", text) is accepts(lark, text), text


@given(st.text('ab"', max_size=5), st.sampled_from(LIKE_LARK))
def test_a_grammar_matches_what_it_matches_in_lark(text: str, grammar: str) -> None:
    assert matches(grammar, text) is accepts(_oracle(grammar), text)
