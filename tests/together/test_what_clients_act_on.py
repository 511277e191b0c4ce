"""The codes, words and events that clients match by their sources, as docs/clients.md lists them: each is provoked, and
said as its clients read it. A client isn't needed for that; tests/together/clients has those.
"""

import re
from typing import Any

import pytest

from service.engine.port import EngineError, EngineOverloaded, EngineRefused
from service.process import Settings
from tests.support.documents import read, rows, section
from tests.support.engine.scripted import Die
from tests.support.service.inside import called, opened, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.service.streams import sent

RESPONSES, CHAT, MESSAGES = "/v1/responses", "/v1/chat/completions", "/v1/messages"

UNKNOWN = "resp_" + "0" * 48
LONG = "one " * 140_000
FUNCTION: dict[str, Any] = {"name": "f", "parameters": {"type": "object", "properties": {}}}
USER: dict[str, Any] = {"role": "user", "content": "hi"}
CALL: dict[str, Any] = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "call_1", "output": "so"}
CHAT_CALL: dict[str, Any] = {
    "role": "assistant",
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
USE: dict[str, Any] = {"type": "tool_use", "id": "call_1", "name": "f", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "call_1", "content": "so"}

REFUSED: dict[str, tuple[Any, ...]] = {
    "context_length_exceeded": (
        *(RESPONSES, LONG, 400, "context_length_exceeded"),
        r"(?i)this model's maximum context length is 131072 tokens",  # LiteLLM's words, and hermes' within them
    ),
    "maximum context length": (
        CHAT,
        [{"role": "user", "content": LONG}],
        400,
        "context_length_exceeded",
        "context length",
    ),
    "prompt is too long: N tokens > M maximum": (
        *(MESSAGES, [{"role": "user", "content": LONG}], 400, "invalid_request_error"),
        r"^prompt is too long[^0-9]*(\d+)\s*tokens?\s*>\s*(\d+) maximum$",  # of Anthropic's command line
    ),
    "previous_response_not_found": (RESPONSES, UNKNOWN, 400, "previous_response_not_found", UNKNOWN),
    "model_not_found": (RESPONSES, None, 404, "model_not_found", "gpt-9"),
    "not_found_error": (MESSAGES, None, 404, "not_found_error", "gpt-9"),
    "No tool call found for function call output": (
        *(RESPONSES, [USER, OUTPUT], 400, None),
        r"^No tool call found for function call output with call_id call_1\. ",
    ),
    "No tool output found for function call": (
        *(RESPONSES, [USER, CALL, USER], 400, None),
        r"^No tool output found for function call call_1\. ",
    ),
    "did not have response messages": (
        *(CHAT, [USER, CHAT_CALL, USER], 400, None),
        r"The following tool_call_ids did not have response messages: call_1$",
    ),
    "must be a response to a preceding message": (
        *(CHAT, [USER, {"role": "tool", "tool_call_id": "call_1", "content": "so"}], 400, None),
        r"^Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
    ),
    "ids were found without": (
        *(MESSAGES, [USER, {"role": "assistant", "content": [USE]}, USER], 400, "invalid_request_error"),
        r"^`tool_use` ids were found without `tool_result` blocks immediately after: call_1\.",
    ),
    "unexpected": (
        *(MESSAGES, [USER, {"role": "user", "content": [RESULT]}], 400, "invalid_request_error"),
        r"^unexpected `tool_use_id` found in `tool_result` blocks: call_1\.",
    ),
}
"""By what clients match: the path, what is sent in the place that matters, the status, the code (Anthropic's type), and
the words.
"""

ELSEWHERE = {
    "rate_limit_exceeded": "tests/features/tenants/test_limits_over_http.py",
    "insufficient_quota": "tests/features/tenants/test_limits_over_http.py",
    "conversation_locked": "tests/core/web/test_one_conversation.py",
    "websocket_connection_limit_reached": "tests/features/sockets/test_socket.py",
    "request_too_large": "tests/core/web/test_bad_input.py",
    "service_unavailable": "tests/core/web/test_errors.py",
    "stop_reason": "tests/features/chats/test_chats.py",
    "finish_reason": "tests/features/chats/test_chats.py",
    "x-should-retry": "tests/core/web/test_errors.py",
}
IN_ANSWERS = (
    "invalid_encrypted_content",
    "overloaded_error",
    "server_error",
    "invalid_prompt",
    "response.incomplete",
    "response.completed",
)


@pytest.mark.parametrize("matched", REFUSED)
async def test_a_refusal_has_the_status_the_code_and_the_words_that_its_clients_match(
    settings: Settings, matched: str
) -> None:
    path, told, status, code, words = REFUSED[matched]
    body: dict[str, Any] = {
        "model": MODEL if told is not None else "gpt-9",
        "max_tokens": 16,
        "messages": told or [USER],
    }
    if path == RESPONSES:
        body = {"model": body["model"], "input": told if told not in (None, UNKNOWN) else "hi"}
        body |= {"previous_response_id": UNKNOWN} if told == UNKNOWN else {}
    async with serving(settings.model_copy(update={"chats": "remember"})) as inside, inside.http() as http:
        answer = await http.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type" if path == MESSAGES else "code"]) == (status, code), error
    assert re.search(words, error["message"]), error["message"]
    assert answer.headers["x-should-retry"] == "false"


async def test_reasoning_that_cannot_be_opened_has_the_code_on_which_hermes_sends_none(settings: Settings) -> None:
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAABqXwZm9y"}
    async with serving(settings.model_copy(update={"unsupported": "refuse"})) as inside, inside.http() as http:
        answer = await http.post(RESPONSES, json={"model": MODEL, "input": [USER, sealed]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_encrypted_content")


async def test_a_websocket_says_that_a_response_is_gone_and_codex_sends_all_again(settings: Settings) -> None:
    async with serving(settings) as inside, socket(inside.url) as opened_one:
        await opened_one.ask(previous_response_id=UNKNOWN)
        (frame,) = await opened_one.rest()
    assert (frame["type"], frame["status"], frame["error"]["code"]) == ("error", 400, "previous_response_not_found")


async def test_the_command_line_comes_back_to_a_service_without_room(settings: Settings) -> None:
    full = scripted([Die(EngineOverloaded("no room", 3))])
    async with serving(settings.model_copy(update={"chats": "remember"}), full) as inside, inside.http() as http:
        answer = await http.post(MESSAGES, json={"model": MODEL, "max_tokens": 16, "messages": [USER]})
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "overloaded_error")
    assert (answer.headers["retry-after"], answer.headers["x-should-retry"]) == ("3", "true")


@pytest.mark.parametrize(
    ("error", "code"), [(EngineError("it is gone"), "server_error"), (EngineRefused("too hot"), "invalid_prompt")]
)
async def test_codex_asks_again_after_a_failure_and_not_after_a_refusal(
    settings: Settings, error: EngineError, code: str
) -> None:
    async with serving(settings, scripted([opened("Ahoy"), Die(error)])) as inside, inside.http() as http:
        answer = await http.post(RESPONSES, json={"model": MODEL, "input": "hi", "stream": True})
    *_, last = sent(answer.text)
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", code)


async def test_a_stream_ends_with_what_each_client_waits_for(settings: Settings) -> None:
    engine = scripted([called("f", "{}")], [opened("one two three four five six seven " * 9)])
    tools = [{"type": "function", **FUNCTION}]
    async with serving(settings, engine) as inside, inside.http() as http:
        ends = [
            sent((await http.post(RESPONSES, json={"model": MODEL, "input": "hi", "stream": True, **more})).text)[-1]
            for more in ({"tools": tools}, {"max_output_tokens": 16})
        ]
    assert [end["type"] for end in ends] == ["response.completed", "response.incomplete"]
    assert all(end["response"]["usage"]["total_tokens"] > 0 for end in ends)
    assert ends[1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_each_row_of_the_document_has_its_test() -> None:
    table = rows(section(read("docs/clients.md"), "What clients act on"))
    told = {re.split("`", row[0])[1] for row in table}
    assert told == {*REFUSED, *ELSEWHERE, *IN_ANSWERS}
    for name, path in ELSEWHERE.items():
        assert name in read(path), f"{name} isn't in {path}"
