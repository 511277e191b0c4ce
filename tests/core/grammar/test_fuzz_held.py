"""Whatever regex, grammar or schema is taken, an answer can be checked against it; all others are refused by name."""

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import InvalidRequest
from service.grammar.checks import mismatch
from service.grammar.grammars import enforced_grammar
from service.grammar.regex import enforced_regex
from service.grammar.schemas import enforced_schema
from service.grammar.tags import content_tag, grammar_content, regex_content, schema_content
from service.steps import in_one_go
from tests.support.fuzz.fuzzing import Maker

REGEX = (
    *("a", "b", "(", ")", "[", "]", "[^", "^", "$", "|", "*", "+", "?", "{2}", "{1,3}", "{,5}", "{1000}", "{0}", "?+"),
    *(r"\d", r"\w", r"\S", r"\b", r"\p{L}", r"\u0041", r"\x41", r"\1", r"\Z", ".", "-", "&&", "<", ">", "\n", "é", "𝄞"),
    *("(?:", "(?P<n>", "(?=", "(?>", "(?i:", '"', "\\\\", "[:alpha:]"),
)
LARK = (
    *("start", ": ", " ", "a", "A", '"x"', '"y"i', "/a+/", "/[a-z]/i", "/(/", "|", "*", "+", "?", "~2", "~1..3"),
    *("~300", "(", ")", "[", "]", "{x}", "{", "}", "\n", "\na: ", "\nA: ", "\n?b: ", "\n%ignore ", "->", '""', ".2"),
    *("\n%import common.INT", "//c\n", '"a".."z"', "'q'", "\\", '"\\x"', "/a/x", "/\n/s", "\n%declare X"),
)
ANSWERS = ("", "a", "x", "1", "null", "{}", '{"a": 1}', '"a"', "[[[", "a" * 50)

some = settings(max_examples=10 * settings.default.max_examples, deadline=None, derandomize=True, database=None)


def check(make: Callable[[], str], answer: str) -> None:
    """What is taken has a tag for the engine, and can be checked; only InvalidRequest says that it isn't."""
    with contextlib.suppress(InvalidRequest):
        content = make()
        assert content_tag(content)
        mismatch(content, answer)


@some
@given(st.lists(st.sampled_from(REGEX), max_size=12), st.sampled_from(ANSWERS))
def test_any_regex_is_refused_or_can_be_checked(pieces: list[str], answer: str) -> None:
    check(lambda: regex_content(enforced_regex("".join(pieces), "definition")), answer)


@some
@given(st.lists(st.sampled_from(LARK), max_size=12), st.sampled_from(ANSWERS))
def test_any_grammar_is_refused_or_can_be_checked(pieces: list[str], answer: str) -> None:
    lark = "".join(("start: ", *pieces, '\na: "z"'))
    check(lambda: grammar_content(in_one_go(enforced_grammar(lark, "definition"))), answer)


@some
@given(st.integers(0, 2**48), st.sampled_from(ANSWERS))
def test_any_schema_is_refused_or_can_be_checked(seed: int, answer: str) -> None:
    schema: Any = Maker(Random(seed)).schema(4)
    check(lambda: schema_content(in_one_go(enforced_schema(schema, "schema"))), answer)
