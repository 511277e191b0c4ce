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
        ([{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]}], "[image]"),
        ([{"role": "user", "content": [{"type": "input_file"}, {"type": "input_image"}]}], "[file]"),
        ([{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}], "No."),
        ([{"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}], ""),
        ([{"type": "function_call", "name": "look", "arguments": '{"x":1}'}], 'look({"x":1})'),
        ([{"type": "custom_tool_call", "name": "run", "input": "ls"}], "run(ls)"),
        ([{"type": "code_interpreter_call", "code": "print(1)\n"}], "code_interpreter(print(1))"),
        ([{"type": "web_search_call", "action": {"type": "search", "query": "Ada"}}], "web_search(Ada)"),
        ([{"type": "mcp_list_tools", "name": "x", "tools": []}], ""),
        ([{"type": "function_call", "name": "look"}, {"role": "user", "content": "Hi"}], "Hi"),
        ([{"type": "message", "content": "   "}, {"content": "Hi"}], "Hi"),
        ([{"type": "message", "content": {"text": "x"}, "output": 3}], ""),
        ([{"type": "message", "content": [None, 3, [], {"text": None}]}], ""),
        ([None, 3, "x", []], ""),
        ([{"type": "mcp_call", "name": 3}], "mcp()"),
    ],
)
def test_the_first_text_of_items_is_shown(items: Any, expected: str) -> None:
    assert cut(items=items).input == expected
    assert cut(output=items).output == expected


MCP = {"type": "mcp_call", "name": "add", "arguments": '{"a":1}', "output": "42"}
SAID = {"type": "message", "role": "assistant"}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([MCP, {**SAID, "phase": "final_answer", "content": "It is 42."}], "It is 42."),
        ([{**SAID, "phase": "commentary", "content": "I'll add."}, MCP, {**SAID, "content": "42 it is."}], "42 it is."),
        (
            [{**SAID, "phase": "final_answer", "content": "42."}, MCP, {**SAID, "phase": "commentary", "content": "x"}],
            "42.",
        ),
        ([{**SAID, "phase": "commentary", "content": "I'll add."}, MCP], "I'll add."),
        ([{**SAID, "content": "Once."}, {**SAID, "content": " "}], "Once."),
        ([MCP, {**MCP, "name": "last"}], 'last({"a":1})'),
        ([{"type": "function_call_output", "call_id": "c", "output": "42"}], ""),
    ],
)
def test_the_answer_is_the_final_one_else_the_last_message_else_the_last_call_and_never_what_a_tool_gave(
    output: Any, expected: str
) -> None:
    assert cut(output=output).output == expected


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}], "Hi"),
        ([{"role": "developer", "content": "Be brief."}, {"type": "function_call", "name": "look"}], "Be brief."),
        ([{"type": "function_call_output", "call_id": "c", "output": "42"}], "42"),
        ([{"type": "function_call_output", "output": [{"type": "input_text", "text": "43"}]}], "43"),
        ([{"type": "function_call", "name": "look"}, {"type": "function_call_output", "output": "42"}], "42"),
    ],
)
def test_what_was_asked_is_what_the_user_said_before_all_else(items: Any, expected: str) -> None:
    assert cut(items=items).input == expected


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
