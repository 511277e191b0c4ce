"""Input items: what is read of each kind, how it is listed again, how it stands in the prompt, and what it changes."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.content import IMAGE
from service.api.items import Gathered, InputItem
from service.api.read import identify, read_input
from service.errors import InvalidRequest
from service.harmony.render import message
from service.harmony.tokens import decode, unpack
from service.responses.output import sealed
from service.steps import in_one_go
from store.turn import StoredMessage
from tests.support.responses.requests import ENVELOPES, Json, prompt, read
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


@pytest.mark.parametrize("id", [None, "rs_of_the_client", "", 5])
def test_reasoning_is_taken_back_whatever_id_the_client_gave_it(id: object) -> None:
    made = prompt(input=[{**reasoning(None, "Hm."), "id": id}, USER])

    assert made.messages[0].channel == "analysis"


def test_a_seal_of_another_kind_is_refused() -> None:
    error = refusal(USER, reasoning(ENVELOPES.seal(sealed.COMPACTION, sealed.compaction("So far."))))

    assert "not of a reasoning" in error.message


# --- tools that ran elsewhere ---


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
        (CODE, ["assistant to=pythonanalysis1 + 1", "python to=assistantanalysis2\n"]),
        (MCP, ["assistant to=clock.sleepcommentary json{}", "clock.sleep to=assistantcommentarySlept."]),
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


# --- forms of one item ---

MAX_ITEMS = 1000
SHOWN = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}], "status": "completed"}


def read_items(value: Any) -> list[InputItem]:
    """The items of `input` as a client sends it; bytes are sent as they are."""
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return in_one_go(read_input(msgspec.Raw(raw), Gathered(), max_items=MAX_ITEMS))


def listed_again(value: Any) -> Any:
    """The items as they are listed again, without the ids."""
    items = msgspec.json.decode(msgspec.json.encode(read_items(value)))
    return [{key: each[key] for key in each if key != "id"} for each in items]


# --- what is read ---


def test_a_text_is_a_message_of_the_user() -> None:
    assert listed_again("Hi") == [SHOWN]


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
    assert listed_again([item]) == [SHOWN]


def test_a_message_of_the_assistant_keeps_its_phase_and_has_output_parts() -> None:
    item = {"role": "assistant", "content": "Hi", "phase": "commentary"}
    part = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}

    assert listed_again([item]) == [
        {"type": "message", "role": "assistant", "content": [part], "status": "completed", "phase": "commentary"}
    ]


def test_the_parts_of_an_output_are_one_text() -> None:
    parts = [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]
    (item,) = read_items([{"type": "function_call_output", "call_id": "call_1", "output": parts}])

    assert getattr(item, "text", None) == "42"


def test_reasoning_keeps_what_was_thought_and_its_summary() -> None:
    content = [{"type": "reasoning_text", "text": "Hm."}]
    summary = [{"type": "summary_text", "text": "Thinking."}]
    sent = {"type": "reasoning", "id": "rs_1", "content": content, "summary": summary, "encrypted_content": None}

    assert listed_again([sent]) == [
        {"type": "reasoning", "content": content, "summary": summary, "status": "completed"}
    ]


# --- what is refused ---


# --- in steps ---


def listed_first(item: Json) -> Json:
    return msgspec.json.decode(msgspec.json.encode(prompt(input=[item, USER]).items[0]))


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
    assert listed_first(added)["tools"] == added["tools"]


def test_the_key_of_an_added_server_is_not_listed() -> None:
    server = {"type": "mcp", "server_label": "clock", "server_url": "https://example.com", "authorization": "hush"}
    again = listed_first({"type": "additional_tools", "role": "developer", "tools": [server]})

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


# --- files and images ---

IMAGE_PART: Json = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "high"}


def base64(content: bytes) -> str:
    return b64encode(content).decode()


def file(content: bytes = b"Milk\nBread", **members: Any) -> Json:
    return {"type": "input_file", "filename": "list.txt", "file_data": base64(content), **members}


def text(words: str) -> Json:
    return {"type": "input_text", "text": words}


def said(*parts: Json, **options: Any) -> str:
    """The words of a user's message that the model reads."""
    made = prompt(input=[{"role": "user", "content": list(parts)}], **options)
    return decode(made.tokens).rpartition("message.user")[2].removesuffix("assistant")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([file()], "[File: list.txt]\nMilk\nBread\n[End of file: list.txt]"),
        ([file(filename=None)], "[File: file]\nMilk\nBread\n[End of file: file]"),
        (
            [text("What's missing?"), file(), text("Be brief.")],
            "What's missing?\n[File: list.txt]\nMilk\nBread\n[End of file: list.txt]\nBe brief.",
        ),
        *(
            (
                [file(file_data=f"data:{kind};base64,{base64(b'Milk')}")],
                "[File: list.txt]\nMilk\n[End of file: list.txt]",
            )
            for kind in ("text/plain", "text/csv;charset=utf-8", "")
        ),
        ([text("What is this?"), IMAGE_PART], f"What is this?\n{IMAGE}"),
    ],
)
def test_a_file_stands_between_two_lines_with_its_name_and_an_image_leaves_a_line(parts: list[Json], told: str) -> None:
    assert said(*parts) == told


@given(words=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=200))
def test_any_text_is_read_as_it_is(words: str) -> None:
    content = words.encode()
    if not content.startswith(b"%PDF-"):
        assert said(file(content)).removeprefix("[File: list.txt]\n").startswith(words)


def test_an_image_that_a_tool_returns_leaves_a_line_too() -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    answer = {"type": "function_call_output", "call_id": "call_1", "output": [IMAGE_PART]}

    assert IMAGE in decode(prompt(input=[call, answer]).tokens)


def test_images_are_refused_where_that_is_set() -> None:
    error = refusal({"role": "user", "content": [IMAGE_PART]}, refuses=True)

    assert (error.param, error.code) == ("input[0].content[0].type", "unsupported_parameter")


def test_outputs_that_do_not_stand_side_by_side_stay_where_they_are() -> None:
    second = {**CALL, "call_id": "call_2"}
    answers = [{**output("function_call_output"), "call_id": id} for id in ("call_2", "call_1")]
    made = prompt(input=[CALL, second, answers[0], {"role": "user", "content": "And?"}, answers[1]])

    assert [each.call_id for each in made.messages] == ["call_1", "call_2", "call_2", None, "call_1"]
