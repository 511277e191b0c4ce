"""Input items that change the request: updates, added tools, and references to what is stored."""

from typing import Any

import msgspec
import pytest

from service.errors import InvalidRequest
from service.harmony.tokens import decode
from tests.support.responses.requests import Json, prompt, read

USER: Json = {"role": "user", "content": "Hi"}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
ANSWER: Json = {"type": "function_call_output", "call_id": "call_1", "output": "5"}


def listed(item: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(prompt(input=[item, USER]).items[0]))


def refusal(*items: Json, **body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        prompt(input=list(items), **body)
    return caught.value


# --- updates and tools ---


def test_an_update_changes_the_effort_and_the_last_one_holds() -> None:
    updates = [{"type": "configuration_update", "reasoning": {"effort": effort}} for effort in ("low", "high")]
    made = prompt(input=[USER, *updates, USER])

    assert read(input=[USER, *updates, USER]).effort == "high"
    assert "Reasoning: high" in decode(made.tokens)
    assert len([message for message in made.messages if message.tokens]) == 2


def test_an_update_changes_the_format_of_the_answer() -> None:
    form = {"type": "json_object"}
    made = read(input=[USER, {"type": "configuration_update", "text": {"format": form}}])

    assert made.format.echo == form
    assert made.rules.answer is not None


def test_added_tools_are_called_like_the_request_s_own() -> None:
    added = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "extra"}]}
    made = prompt(input=[added, USER], tools=[{"type": "function", "name": "own"}])

    assert [callee.name for callee in made.rules.callees] == ["own", "extra"]
    assert "type extra" in decode(made.tokens)
    assert listed(added)["tools"] == added["tools"]


def test_the_key_of_an_added_server_is_not_listed() -> None:
    server = {"type": "mcp", "server_label": "clock", "server_url": "https://example.com", "authorization": "hush"}
    again = listed({"type": "additional_tools", "role": "developer", "tools": [server]})

    assert "hush" not in str(again)


# --- references ---

KEPT: dict[str, Json] = {"msg_1": {"type": "message", "id": "msg_1", "role": "assistant", "content": "Yes."}}


@pytest.mark.parametrize(
    "sent", [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}, {"type": None, "id": "msg_1"}]
)
def test_a_reference_is_the_item_that_is_stored(sent: Json) -> None:
    made = prompt(input=[sent, USER], stored=KEPT)

    assert made.messages == prompt(input=[*KEPT.values(), USER]).messages
    assert made.items[0].kind == "message"


def test_stored_items_have_as_many_parts_as_those_that_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.responses.prompt.build.MAX_ITEMS", 4)
    part = {"type": "input_text", "text": "x"}
    stored = {f"msg_{n}": {"role": "user", "content": [part] * 9} for n in range(2)}
    error = refusal(*({"id": name} for name in stored), stored=stored)

    assert (error.param, error.code) == ("input", "invalid_value")
    assert "more than 16" in error.message


def test_stored_items_are_no_longer_than_a_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.read.MAX_REFERENCED_BYTES", 150)
    stored = {f"msg_{n}": {"role": "user", "content": "x" * 60} for n in range(2)}
    error = refusal(*({"id": name} for name in stored), stored=stored)

    assert (error.param, error.code) == ("input[1].id", "invalid_value")
    assert "150 bytes" in error.message


@pytest.mark.parametrize(
    "item",
    [
        {"type": "additional_tools", "tools": []},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "compaction_trigger"},
    ],
)
def test_what_says_how_one_request_is_served_is_never_referred_to(item: Json) -> None:
    error = refusal({"id": "x_1"}, USER, stored={"x_1": item})

    assert (error.param, error.code) == ("input[0].id", "invalid_value")
    assert item["type"] in error.message


def test_a_stored_call_is_answered() -> None:
    made = prompt(input=[{"id": "fc_1"}, ANSWER], stored={"fc_1": CALL})

    assert made.messages[1].name == "functions.lookup"
