"""Requests of Chat Completions as those of the Responses API that they become, and the names that refusals have."""

import json
import re
from typing import Any

import msgspec

from service.api.request import ChatBody, CreateRequest, read_create
from service.errors import ApiError
from service.features.chats.chat import UNSERVED, ChatLimits, TranslatedChat, read_chat
from service.steps import in_one_go
from tests.support.responses.requests import read_checked

LIMITS = ChatLimits(messages=16, tools=4, tools_bytes=1000)
HI = {"role": "user", "content": "hi"}
F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1e400}'}}
CUSTOM = {"id": "b", "type": "custom", "custom": {"name": "c", "input": "aaa"}}
OUTPUT = {"role": "tool", "tool_call_id": "a", "content": "done"}
PIXEL = "data:image/png;base64,AAAA"


def translate(*messages: Any, refuses: bool = False, **members: Any) -> TranslatedChat:
    body = json.dumps({"model": "m", "messages": list(messages) or [HI], **members}).encode()
    return in_one_go(read_chat(body, LIMITS._replace(refuses=refuses)))


def created(*messages: Any, **members: Any) -> CreateRequest:
    return read_create(translate(*messages, **members).body, store=True, kind=ChatBody)


def items(*messages: Any) -> list[Any]:
    return msgspec.json.decode(created(*messages).input)


def refusal(body: dict[str, Any], *, refuses: bool = False) -> ApiError | None:
    """How a request is refused by the readers, in the client's names; `refuses` is said of histories."""
    chat = None
    try:
        chat = translate(**({"messages": [HI]} | body), refuses=refuses)
        read_checked(read_create(chat.body, store=True, kind=ChatBody), refuses=refuses)
    except ApiError as error:
        if chat is not None:
            chat.names.rename(error)
        return error
    return None


def test_a_conversation_becomes_items_in_its_order() -> None:
    said = {"role": "assistant", "content": "I look.", "reasoning": "Hm.", "tool_calls": [CALL, CUSTOM]}
    later = {"role": "system", "content": "Be kind."}
    assert items(HI, said, OUTPUT, later, HI) == [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": "I look.", "phase": "commentary"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x": 1e400}'},
        {"type": "custom_tool_call", "call_id": "b", "name": "c", "input": "aaa"},
        {"type": "function_call_output", "call_id": "a", "output": "done"},
        {"type": "message", "role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": "hi"},
    ]


def test_leading_system_and_developer_messages_are_the_instructions() -> None:
    parts = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    request = created({"role": "system", "content": "a"}, {"role": "developer", "content": parts}, HI)
    assert request.instructions == "a\n\nbc"
    assert created(HI).instructions is None


def test_parts_have_the_types_of_items() -> None:
    image = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}
    file = {"type": "file", "file": {"file_data": "aGk=", "filename": "a.txt"}}
    content = items({"role": "user", "content": [{"type": "text", "text": "a"}, image, file]})[0]["content"]
    assert content[1:] == [
        {"type": "input_image", "image_url": PIXEL, "detail": "low"},
        {"type": "input_file", "file_data": "aGk=", "filename": "a.txt"},
    ]


def test_members_go_where_the_responses_api_has_them() -> None:
    schema = {"name": "s", "schema": {"type": "object"}, "strict": True}
    request = created(
        max_tokens=1,
        reasoning_effort="high",
        verbosity="low",
        logprobs=True,
        top_logprobs=3,
        response_format={"type": "json_schema", "json_schema": schema},
        stop="x",
        stream=True,
        stream_options={"include_usage": True, "include_obfuscation": False},
    )
    assert (request.max_output_tokens, request.effort, request.verbosity) == (1, "high", "low")
    assert (request.shows_logprobs, request.top_logprobs, request.stop) == (True, 3, ("x",))
    assert msgspec.json.decode(request.format) == {"type": "json_schema", **schema}
    assert (request.stream, request.obfuscate) == (True, False)


def test_tools_and_choices_lose_their_nesting() -> None:
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    custom = {"type": "custom", "custom": {"name": "c", "format": grammar}}
    named = {"type": "function", "function": {"name": "f"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [named]}}
    request = created(tools=[F, custom], tool_choice=allowed)
    assert msgspec.json.decode(request.tools) == [
        {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}},
        {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
    ]
    flat = {"type": "function", "name": "f"}
    assert msgspec.json.decode(request.tool_choice) == {"type": "allowed_tools", "mode": "required", "tools": [flat]}
    assert msgspec.json.decode(created(tools=[F], tool_choice=named).tool_choice) == flat
    read_checked(request)


def test_a_function_cannot_become_another_type_from_inside() -> None:
    inside = {"name": "f", "type": "mcp", "server_url": "http://10.0.0.1"}
    tool = msgspec.json.decode(created(tools=[{"type": "function", "function": inside}]).tools)[0]
    assert tool["type"] == "function"
    assert refusal({"tools": [{"type": "function", "function": inside}]}).param == "tools[0].function.server_url"


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a bias": ({"logit_bias": {"1": 5}}, "logit_bias", "not supported"),
    "too many messages": ({"messages": [HI] * 17}, "messages", "at most 16"),
    "a message without a role": ({"messages": [{"content": "x"}]}, "messages[0].role", "Missing"),
    "a picture as an instruction": (
        {"messages": [{"role": "system", "content": [{"type": "image_url"}]}, HI]},
        "messages[0].content[0].type",
        "'text'",
    ),
    "a sound": (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[0].content[0].type",
        "input_audio",
    ),
    "a picture in a file": (
        {
            "messages": [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}
            ]
        },
        "messages[0].content[0].image_url",
        "data URL",
    ),
    "a tool that answers nothing": ({"messages": [{"role": "tool"}]}, "messages[0].tool_call_id", "Missing"),
    "a call of no function": (
        {"messages": [HI, {"role": "assistant", "tool_calls": [CALL | {"function": None}]}]},
        "messages[1].tool_calls[0].function",
        "Missing",
    ),
    "a call of a strange name": (
        {
            "messages": [
                {"role": "assistant", "tool_calls": [CALL | {"function": {"name": "<|call|>", "arguments": ""}}]}
            ]
        },
        "messages[0].tool_calls[0].function.name",
        "<|call|>",
    ),
    "a sound of the model's": (
        {"messages": [HI, {"role": "assistant", "audio": {"id": "x"}}, HI]},
        "messages[1].audio",
        "tool_calls",
    ),
    "a function that answers nothing": ({"messages": [{"role": "function", "name": "f"}]}, "messages[0].name", "f"),
    "several answers": ({"n": 2}, "n", "HARMONIUM_CHATS"),
    "a parameter of vLLM's": ({"echo": True}, "echo", "HARMONIUM_CHATS=pass-on"),
    "a strange member": ({"max_output_tokens": 5}, "max_output_tokens", "Unknown"),
    "two limits": ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens", "one of the two"),
    "alternatives of nothing": ({"top_logprobs": 2}, "top_logprobs", "logprobs"),
    "a schema that can't be": (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "strict": True, "schema": {"type": 1}},
            }
        },
        "response_format.json_schema.schema.type",
        "1",
    ),
    "too many tools": ({"tools": [F] * 5}, "tools", "at most 4"),
    "a tool of no type": ({"tools": [{}]}, "tools[0].type", "function"),
    "a tool that runs here": ({"tools": [{"type": "mcp"}]}, "tools[0].type", "/v1/responses"),
    "a tool of a strange name": (
        {"tools": [{"type": "function", "function": {"name": "<|end|>"}}]},
        "tools[0].function.name",
        "<|end|>",
    ),
    "a choice of no tool": (
        {"tools": [F], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice.function.name",
        "g",
    ),
}


HISTORIES = {"a call of no function", "a call of a strange name", "a sound of the model's"}
"""Those that nobody can change: they are refused only where that is asked for."""


def test_a_bad_request_is_refused_in_its_own_words() -> None:
    for name, (body, param, words) in BAD.items():
        error = refusal(body)
        assert (error is None) == (name in HISTORIES), name
        error = error or refusal(body, refuses=True)
        assert error is not None
        assert (error.status, error.param) == (400, param), (name, error.message)
        assert words in error.message, (name, error.message)
        assert not re.search(r"input\[|text\.format|instructions", error.message), (name, error.message)


def test_what_changes_nothing_may_be_said() -> None:
    created(**{name: json.loads(harmless) for name, (harmless, _) in UNSERVED.items()})
    said = {"role": "assistant", "content": "Fine.", "tool_calls": []}
    assert "phase" not in items(HI, said, HI)[1]
    strict = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": None}}
    read_checked(created(tools=[{**F, "function": F["function"] | {"strict": None}}], response_format=strict))
