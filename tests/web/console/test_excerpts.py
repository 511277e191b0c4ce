"""Excerpts of whatever a release may have stored: a text, or a call where there is none, and never a fault."""

from typing import Any

import msgspec
import pytest

from service.web.console.trees import EXCERPT_CHARS, Excerpt, excerpt_of


def cut(output: Any = (), items: Any = (), **response: Any) -> Excerpt:
    """What is shown of a turn."""
    return excerpt_of(msgspec.json.encode({"output": output, **response}), msgspec.json.encode(items))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], ""),
        ([{"type": "message", "role": "user", "content": "Hello  there,\n you."}], "Hello there, you."),
        ([{"role": "user", "content": [{"type": "input_image"}, {"type": "input_text", "text": "Hi"}]}], "Hi"),
        ([{"type": "function_call_output", "call_id": "c", "output": "42"}], "42"),
        ([{"type": "function_call_output", "output": [{"type": "input_text", "text": "43"}]}], "43"),
        ([{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}], ""),
        ([{"type": "function_call", "name": "look", "arguments": '{"x":1}'}], 'look({"x":1})'),
        ([{"type": "custom_tool_call", "name": "run", "input": "ls"}], "run(ls)"),
        ([{"type": "function_call", "name": "look"}, {"role": "user", "content": "Hi"}], "Hi"),
        ([{"type": "message", "content": "   "}, {"content": "Hi"}], "Hi"),
        ([{"type": "message", "content": {"text": "x"}, "output": 3}], ""),
        ([{"type": "message", "content": [None, 3, [], {"text": None}]}], ""),
        ([None, 3, "x", []], ""),
        ([{"type": "mcp_call", "name": 3}], ""),
    ],
)
def test_the_first_text_of_items_is_shown(items: Any, expected: str) -> None:
    assert cut(items=items).input == expected
    assert cut(output=items).output == expected


def test_an_excerpt_has_so_many_characters_of_whatever_there_is() -> None:
    text = "ẞ😀" * 10_000_000
    assert cut(items=[{"content": text}]).input == text[:EXCERPT_CHARS]
    assert len(cut(items=[{"type": "function_call", "name": "n", "arguments": "a" * 1_000}]).input) == EXCERPT_CHARS


def test_what_a_response_took_is_told_and_of_a_turn_without_one_nothing() -> None:
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "input_tokens_details": {}}
    found = cut(model="m", usage=usage, metadata={"a": "1"})
    assert (found.model, found.usage.input_tokens, found.usage.output_tokens, found.metadata) == ("m", 3, 4, {"a": "1"})
    found = cut(model="m", usage=None, metadata=None)
    assert (found.usage.input_tokens, found.metadata) == (0, {})
    assert excerpt_of(b"{}", b"[]") == Excerpt(None, found.usage, {}, "", "")
