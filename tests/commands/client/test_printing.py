"""What a terminal gets of a hostile text, and how responses and items are put in words."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.commands.client.printing import EXCERPT_CHARS, excerpt, harmless, head_of, text_of, transcript


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    shown = harmless(text)
    assert not [sign for sign in shown if unicodedata.category(sign) in ("Cc", "Cs") and sign not in "\n\t"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u2028\u2029")
    assert harmless(shown) == shown


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"])))
def test_words_of_any_language_stay_as_they_are(text: str) -> None:
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2Jb", "a<U+001B>[2Jb"),
        ("a\rb\x9bc\x7f", "a<U+000D>b<U+009B>c<U+007F>"),
        ("a\nb\tc", "a\nb\tc"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("\ue000\ud800", "<U+E000><U+D800>"),
    ],
)
def test_signs_have_names(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_an_excerpt_says_that_there_is_more() -> None:
    assert excerpt("a " * EXCERPT_CHARS).endswith("…")
    assert excerpt("x" * 100_000).endswith("…")
    assert excerpt("a\n b") == "a b"


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"role": "user", "content": "hi"}, "user: hi"),
        ({"type": "message", "role": "user", "content": [{"type": "input_image"}]}, "user: [input_image]"),
        ({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "assistant: no"),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]}, "reasoning: so"),
        ({"type": "function_call", "name": "add", "arguments": "{}"}, "function call: add({})"),
        ({"type": "function_call_output", "output": "3"}, "function call output: 3"),
        ({"type": "custom_tool_call", "name": "run", "input": "x"}, "custom tool call: run(x)"),
        ({"type": "web_search_call"}, "web search call: [web_search_call]"),
    ],
)
def test_an_item_is_a_paragraph(item: dict[str, object], text: str) -> None:
    assert list(transcript([item])) == [text]
    assert text_of(item) == text.partition(": ")[2]


def test_a_response_is_a_line() -> None:
    usage = {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}
    response = {"id": "resp_1", "status": "incomplete", "model": "m", "usage": usage}
    response["incomplete_details"] = {"reason": "max_output_tokens"}
    assert head_of(response) == "resp_1  incomplete (max_output_tokens)  m  5→2 tokens (4 cached)"
    assert head_of({"id": "resp_1", "status": "queued", "model": "m", "usage": None}) == "resp_1  queued  m"
