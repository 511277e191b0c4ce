"""Input items: what is read, in which form it is listed, and what is refused with which words."""

import time
from typing import Any

import msgspec
import pytest

from service.api import ids
from service.api.items import BYTES_A_STEP, Gathered, InputItem
from service.api.read import ITEMS_A_STEP, identify, read_input
from service.errors import InvalidRequest
from service.steps import in_one_go
from tests.support.responses.samples import RESPONSE_ID

MAX_ITEMS = 1000
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}], "status": "completed"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed"}


def read(value: Any) -> list[InputItem]:
    """The items of `input` as a client sends it; bytes are sent as they are."""
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return in_one_go(read_input(msgspec.Raw(raw), Gathered(), max_items=MAX_ITEMS))


def listed(value: Any) -> Any:
    """The items as they are listed again, without the ids."""
    items = msgspec.json.decode(msgspec.json.encode(read(value)))
    return [{key: each[key] for key in each if key != "id"} for each in items]


def refusal(value: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        read(value)
    return caught.value


# --- what is read ---


def test_a_text_is_a_message_of_the_user() -> None:
    assert listed("Hi") == [USER]


def test_no_input_is_no_item() -> None:
    assert read(None) == []
    assert read([]) == []


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": "Hi"},
        {"type": None, "role": "user", "content": "Hi"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "user", "content": "Hi", "id": "msg_1", "status": "completed", "phase": None, "name": "Ada"},
    ],
    ids=["short", "null type", "whole", "chat's part", "replayed"],
)
def test_a_message_is_listed_in_one_form_however_it_was_sent(item: dict[str, Any]) -> None:
    assert listed([item]) == [USER]


@pytest.mark.parametrize("role", ["user", "system", "developer"])
def test_messages_of_clients_have_input_parts(role: str) -> None:
    assert listed([{"role": role, "content": "Hi"}])[0]["content"] == [{"type": "input_text", "text": "Hi"}]


def test_a_message_of_the_assistant_keeps_its_phase_and_has_output_parts() -> None:
    item = {"role": "assistant", "content": "Hi", "phase": "commentary"}
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}

    assert listed([item]) == [
        {"type": "message", "role": "assistant", "content": [part], "status": "completed", "phase": "commentary"}
    ]


def test_a_refusal_of_the_assistant_is_read() -> None:
    (item,) = read([{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}])

    assert getattr(item, "text", None) == "No."


def test_a_call_and_its_output_are_read() -> None:
    output = {"type": "function_call_output", "call_id": "call_1", "output": "5", "status": "completed"}

    assert listed([CALL, output]) == [CALL, output]


def test_the_parts_of_an_output_are_one_text() -> None:
    parts = [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]
    (item,) = read([{"type": "function_call_output", "call_id": "call_1", "output": parts}])

    assert getattr(item, "text", None) == "42"


def test_reasoning_keeps_what_was_thought_and_its_summary() -> None:
    content = [{"type": "reasoning_text", "text": "Hm."}]
    summary = [{"type": "summary_text", "text": "Thinking."}]
    sent = {"type": "reasoning", "id": "rs_1", "content": content, "summary": summary, "encrypted_content": None}

    assert listed([sent]) == [{"type": "reasoning", "content": content, "summary": summary, "status": "completed"}]


def test_every_item_gets_an_id_from_the_response_and_its_place() -> None:
    items = read([{"role": "user", "content": "Hi", "id": "msg_of_the_client"}, CALL])
    identify(items, RESPONSE_ID)

    assert [item.id for item in items] == [
        ids.input_item_id(RESPONSE_ID, "message", 0),
        ids.input_item_id(RESPONSE_ID, "function_call", 1),
    ]


# --- what is refused ---

MESSAGE = {"role": "user", "content": "Hi"}
REFUSED: dict[str, tuple[Any, str | None, str, str]] = {
    "a lone surrogate": (b'"\\ud800"', "invalid_json", "input", "surrogate"),
    "a lone low surrogate": (b'"a\\ude00b"', "invalid_json", "input", "surrogate"),
    "a lone surrogate in an item": (b'[{"role":"user","content":"\\ud83d!"}]', "invalid_json", "input", "surrogate"),
    "bytes that are no UTF-8": (b'"\xed\xa0\x80"', "invalid_json", "input", "not valid UTF-8"),
    "100,000 levels in the list": (b"[" * 100_000 + b"]" * 100_000, "invalid_json", "input", "nested too deeply"),
    "100,000 levels in an item": (
        b'[{"role":"user","content":"Hi","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}]",
        "invalid_json",
        "input",
        "nested too deeply",
    ),
}


@pytest.mark.parametrize(("value", "code", "param", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_refused_by_name(value: Any, code: str | None, param: str, words: str) -> None:
    error = refusal(value)

    assert (error.status, error.type, error.code, error.param) == (400, "invalid_request_error", code, param)
    assert words in error.message
    assert len(error.message) < 300


# --- in steps ---


def test_a_long_list_is_read_in_steps() -> None:
    raw = msgspec.Raw(msgspec.json.encode([MESSAGE] * (3 * ITEMS_A_STEP)))

    assert sum(1 for _ in read_input(raw, Gathered(), max_items=MAX_ITEMS)) >= 3


def test_others_get_a_turn_between_any_two_long_items() -> None:
    long = {"role": "user", "content": "x" * BYTES_A_STEP}
    raw = msgspec.Raw(msgspec.json.encode([long] * 5))

    assert sum(1 for _ in read_input(raw, Gathered(), max_items=MAX_ITEMS)) >= 5


def test_a_list_that_is_far_too_long_is_refused_quickly() -> None:
    raw = msgspec.json.encode([{}] * 200_000)
    began = time.thread_time()
    refusal(raw)

    assert time.thread_time() - began < 0.5
