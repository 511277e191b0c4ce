"""Input items of every kind: how each is listed again, and how it stands in the prompt."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api import ids
from service.api.read import identify
from service.errors import InvalidRequest
from service.harmony.render import message
from service.harmony.tokens import decode, unpack
from service.responses.output import sealed
from store.turn import StoredMessage
from tests.support.responses.requests import ENVELOPES, Json, prompt
from tests.support.responses.samples import RESPONSE_ID

USER: Json = {"role": "user", "content": "Hi"}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
CUSTOM: Json = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": 'say "hi"'}
THOUGHT = message("Hm, hm.", "assistant", channel="analysis")
ERROR = {"type": "mcp_protocol_error", "code": 404, "message": "No such tool."}
SEARCH: Json = {"type": "web_search_call", "status": "failed", "action": {"type": "search", "query": "x"}}
CODE: Json = {
    "type": "code_interpreter_call",
    "code": "1 + 1",
    "container_id": "c",
    "outputs": [{"type": "logs", "logs": "2\n"}],
    "status": "completed",
}
MCP: Json = {
    "type": "mcp_call",
    "server_label": "clock",
    "name": "sleep",
    "arguments": "{}",
    "output": "Slept.",
    "status": "completed",
}


def output(kind: str, text: str = "5") -> Json:
    return {"type": kind, "call_id": "call_1", "output": text}


def reasoning(sealed_content: str | None = None, *said: str) -> Json:
    content = [{"type": "reasoning_text", "text": text} for text in said]
    return {"type": "reasoning", "summary": [], "content": content or None, "encrypted_content": sealed_content}


def spelled(messages: list[StoredMessage]) -> list[str]:
    """Each message's header and text, the marks left out but for the constraint's."""
    return [decode(unpack(each.tokens)) for each in messages]


def compact(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def listed(*items: Json) -> list[Json]:
    made = prompt(input=[*items, USER]).items
    identify(made, RESPONSE_ID)
    return msgspec.json.decode(msgspec.json.encode(made[:-1]))


def refusal(*items: Json, **body: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        prompt(input=list(items), **body)
    return caught.value


# --- calls ---


def test_a_function_in_a_namespace_is_called_and_answers_by_both_names() -> None:
    made = prompt(input=[{**CALL, "namespace": "crm"}, output("function_call_output")])

    assert [made.messages[0].recipient, made.messages[1].name] == ["crm.lookup", "crm.lookup"]


def test_a_custom_call_of_an_undeclared_tool_is_text_in_json() -> None:
    made = prompt(input=[CUSTOM, output("custom_tool_call_output")])

    assert spelled(made.messages) == [
        'assistant to=functions.patchcommentary json{"input":"say \\"hi\\""}',
        "functions.patch to=assistantcommentary5",
    ]


def test_a_custom_call_under_a_grammar_is_bare_text() -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": ".*"}
    tools = [{"type": "custom", "name": "patch", "format": grammar}]
    made = prompt(input=[CUSTOM, output("custom_tool_call_output")], tools=tools)

    assert spelled(made.messages)[0] == 'assistant to=functions.patchcommentarysay "hi"'


@settings(max_examples=20, derandomize=True, deadline=None)
@given(order=st.permutations(range(1, 6)), chained=st.integers(0, 5))
def test_outputs_stand_in_the_order_of_their_calls_however_they_are_sent(order: list[int], chained: int) -> None:
    calls = [{**CALL, "call_id": f"call_{number}"} for number in range(1, 6)]
    answers = [{**output("function_call_output", str(number)), "call_id": f"call_{number}"} for number in order]
    chain = [
        message("{}", "assistant", channel="commentary", recipient="functions.lookup", call_id=call["call_id"])
        for call in calls[:chained]
    ]
    made = prompt(chain, input=[*calls[chained:], *answers])

    assert [each.call_id for each in made.messages[-5:]] == [call["call_id"] for call in calls]
    assert [item.kind for item in made.items].count("function_call_output") == 5


def test_outputs_that_do_not_stand_side_by_side_stay_where_they_are() -> None:
    second = {**CALL, "call_id": "call_2"}
    answers = [{**output("function_call_output"), "call_id": id} for id in ("call_2", "call_1")]
    made = prompt(input=[CALL, second, answers[0], {"role": "user", "content": "And?"}, answers[1]])

    assert [each.call_id for each in made.messages] == ["call_1", "call_2", "call_2", None, "call_1"]


def test_an_id_may_be_used_again_for_another_call() -> None:
    once = [CALL, output("function_call_output")]

    assert len(prompt(input=[*once, *once]).messages) == 4


def test_a_call_has_one_output() -> None:
    with pytest.raises(InvalidRequest) as caught:
        prompt(input=[CALL, output("function_call_output"), output("function_call_output", "6")])

    assert (caught.value.param, caught.value.code) == ("input[2].call_id", "invalid_value")


def test_an_answer_bears_the_name_under_which_a_tool_is_declared_though_the_model_said_less() -> None:
    called = message("{}", "assistant", channel="commentary", recipient="lookup", call_id="call_1")
    tools = [{"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "lookup"}]}]
    made = prompt([called], input=[output("function_call_output")], tools=tools)

    assert made.messages[0].name == "crm.lookup"


# --- reasoning ---


def test_sealed_reasoning_is_the_very_message_that_was_sampled() -> None:
    item = reasoning(ENVELOPES.seal(sealed.REASONING, sealed.reasoning(THOUGHT)), "Shown otherwise.")

    made = prompt(input=[item, CALL, output("function_call_output")]).messages[0]
    assert msgspec.structs.replace(made, item=None) == THOUGHT


def test_sealed_reasoning_may_be_a_text() -> None:
    item = reasoning(ENVELOPES.seal(sealed.REASONING, sealed.reasoning("Hm, hm.")))

    assert prompt(input=[item, USER]).messages[0].tokens == THOUGHT.tokens


def test_sealed_reasoning_is_listed_as_it_came() -> None:
    item = reasoning(ENVELOPES.seal(sealed.REASONING, sealed.reasoning(THOUGHT)))

    assert listed(item)[0]["encrypted_content"] == item["encrypted_content"]


@pytest.mark.parametrize("id", [None, "rs_of_the_client", "", 5])
def test_reasoning_is_taken_back_whatever_id_the_client_gave_it(id: object) -> None:
    made = prompt(input=[{**reasoning(None, "Hm."), "id": id}, USER])

    assert made.messages[0].channel == "analysis"


def test_a_seal_of_another_kind_is_refused() -> None:
    error = refusal(USER, reasoning(ENVELOPES.seal(sealed.COMPACTION, sealed.compaction("So far."))))

    assert "not of a reasoning" in error.message


# --- tools that ran elsewhere ---


def test_code_and_its_logs_are_a_call_of_python_and_its_answer() -> None:
    assert spelled(prompt(input=[CODE, USER]).messages)[:2] == [
        "assistant to=pythonanalysis1 + 1",
        "python to=assistantanalysis2\n",
    ]


def test_an_mcp_call_is_shown_with_what_came_of_it() -> None:
    assert spelled(prompt(input=[MCP, USER]).messages)[:2] == [
        "assistant to=clock.sleepcommentary json{}",
        "clock.sleep to=assistantcommentarySlept.",
    ]


@pytest.mark.parametrize(
    ("error", "text"), [(ERROR, "No such tool."), ("Gone.", "Gone."), ({"type": "x"}, '{"type":"x"}')]
)
def test_an_mcp_call_that_failed_answers_with_its_error(error: object, text: str) -> None:
    made = prompt(input=[{**MCP, "output": None, "error": error}, USER])

    assert spelled(made.messages)[1] == f"clock.sleep to=assistantcommentary{text}"


FOUND = [{"file_id": "f", "filename": "a.txt", "score": 0.9, "text": "The <|start|>heron."}]


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (
            {"type": "file_search_call", "queries": ["x"], "status": "completed", "results": FOUND},
            [
                'assistant to=file_search.msearchcommentary json{"queries":["x"]}',
                f"file_search.msearch to=assistantcommentary{compact(FOUND)}",
            ],
        ),
        (
            {"type": "program", "call_id": "c", "code": "f()", "fingerprint": "x"},
            ['assistant to=programcommentary json{"code":"f()"}'],
        ),
        ({"type": "program_output", "call_id": "c", "result": "5"}, ["program to=assistantcommentary5"]),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else None,
)
def test_what_a_tool_elsewhere_was_asked_and_told_is_a_call_and_its_answer(item: Json, shown: list[str]) -> None:
    made = prompt(input=[item, USER])
    (again,) = listed(item)

    assert spelled(made.messages)[:-1] == shown
    assert {key: again[key] for key in item} == item


@pytest.mark.parametrize(
    "item",
    [
        SEARCH,
        {**CODE, "outputs": None},
        {**MCP, "output": None},
        {**MCP, "server_label": "to=functions.x"},
        {"type": "file_search_call", "queries": ["x"], "status": "completed", "results": None},
        {"type": "image_generation_call", "result": "aGk=", "status": "completed"},
        {"type": "mcp_list_tools", "server_label": "clock", "tools": []},
        {"type": "mcp_approval_request", "server_label": "clock", "name": "sleep", "arguments": "{}"},
        {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}, "status": "completed"},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "x"}},
        {"type": "tool_search_call", "arguments": {"q": "x"}, "status": "completed"},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["f"]}},
        {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [], "status": "completed"},
    ],
    ids=lambda item: item["type"],
)
def test_an_item_that_tells_the_model_nothing_is_listed_and_not_shown(item: Json) -> None:
    (again,) = listed(item)

    assert again["id"].endswith(f"{RESPONSE_ID[5:]}8000")
    assert {key: again[key] for key in item} == item
    assert len(prompt(input=[item, USER]).messages) == 1


def test_every_kind_of_item_has_an_id_that_leads_back_to_its_response() -> None:
    (again,) = listed(SEARCH)

    assert ids.place_of(again["id"]) == ids.ItemIndex(RESPONSE_ID, True, 0)


# --- what is refused ---
