"""Input items: what is read of each kind, how it is listed again, how it stands in the prompt, and what it changes."""

from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.api.content import IMAGE
from service.api.ids import MAX_OUTPUT_ITEMS, ItemIndex, input_item_id, output_item_id, place_of, response_of
from service.api.read import READERS, identify
from service.errors import InvalidRequest
from service.harmony.render import message
from service.harmony.tokens import decode, unpack
from service.responses.output import sealed
from service.responses.prompt.build import Prompt
from store.turn import StoredMessage
from tests.support.responses.requests import ENVELOPES, Json, prompt, read
from tests.support.responses.samples import RESPONSE_ID

USER: Json = {"role": "user", "content": "Hi"}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
CUSTOM: Json = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": 'say "hi"'}
THOUGHT = message("Hm, hm.", "assistant", channel="analysis")
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


def reasoning(content: str) -> Json:
    shown = [{"type": "reasoning_text", "text": "Shown otherwise."}]
    return {"type": "reasoning", "summary": [], "content": shown, "encrypted_content": content}


def spelled(messages: list[StoredMessage]) -> list[str]:
    """Each message's header and text, the marks left out but for the constraint's."""
    return [decode(unpack(each.tokens)) for each in messages]


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


# --- reasoning ---


def test_sealed_reasoning_is_the_very_message_that_was_sampled() -> None:
    item = reasoning(ENVELOPES.seal(sealed.REASONING, sealed.reasoning(THOUGHT)))

    made = prompt(input=[item, CALL, output("function_call_output")]).messages[0]
    assert msgspec.structs.replace(made, item=None) == THOUGHT
    wrong = reasoning(ENVELOPES.seal(sealed.COMPACTION, sealed.compaction("So far.")))
    error = refusal(USER, wrong, refuses=True)
    assert "not of a reasoning" in error.message


# --- tools that ran elsewhere ---


def test_an_mcp_call_that_failed_answers_with_its_error() -> None:
    error = {"type": "mcp_protocol_error", "code": 404, "message": "No such tool."}
    for sent, told in ((error, "No such tool."), ("Gone.", "Gone."), ({"type": "x"}, '{"type":"x"}')):
        made = prompt(input=[{**MCP, "output": None, "error": sent}, USER])
        assert spelled(made.messages)[1] == f"clock.sleep to=assistantcommentary{told}"


FOUND: list[Json] = [{"file_id": "f", "filename": "a.txt", "score": 0.9, "text": "The <|start|>heron."}]


SEARCHED: Json = {"type": "file_search_call", "queries": ["x"], "status": "completed", "results": FOUND}


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        (CODE, ["assistant to=pythonanalysis1 + 1", "python to=assistantanalysis2\n"]),
        (MCP, ["assistant to=clock.sleepcommentary json{}", "clock.sleep to=assistantcommentarySlept."]),
        (
            SEARCHED,
            [
                'assistant to=file_search.msearchcommentary json{"queries":["x"]}',
                f"file_search.msearch to=assistantcommentary{msgspec.json.encode(FOUND).decode()}",
            ],
        ),
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
        {**MCP, "output": None},
        SEARCHED | {"results": None},
        {"type": "image_generation_call", "result": "aGk=", "status": "completed"},
        {"type": "mcp_approval_request", "server_label": "clock", "name": "sleep", "arguments": "{}"},
        {"type": "computer_call", "call_id": "c", "action": {"type": "screenshot"}, "status": "completed"},
        {"type": "tool_search_call", "arguments": {"q": "x"}, "status": "completed"},
    ],
    ids=lambda item: item["type"],
)
def test_an_item_that_tells_the_model_nothing_is_listed_and_not_shown(item: Json) -> None:
    (again,) = listed(item)

    assert again["id"].endswith(f"{RESPONSE_ID[5:]}8000")
    assert {key: again[key] for key in item} == item
    assert len(prompt(input=[item, USER]).messages) == 1


# --- forms of one item ---

HI = [{"type": "input_text", "text": "Hi"}]
SHOWN = {"type": "message", "role": "user", "content": HI, "status": "completed"}
ANSWERED = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
THOUGHTS: Json = {
    "content": [{"type": "reasoning_text", "text": "Hm."}],
    "summary": [{"type": "summary_text", "text": "Thinking."}],
}


@pytest.mark.parametrize(
    ("item", "shown"),
    [
        ({"role": "user", "content": "Hi"}, SHOWN),
        ({"type": None, "role": "user", "content": [{"type": "text", "text": "Hi"}]}, SHOWN),
        ({"type": "message", "role": "user", "content": HI, "status": "completed", "phase": None, "name": "A"}, SHOWN),
        (
            {"role": "assistant", "content": "Hi", "phase": "commentary"},
            SHOWN | {"role": "assistant", "content": [ANSWERED], "phase": "commentary"},
        ),
        (
            {"type": "reasoning", **THOUGHTS, "encrypted_content": None},
            {"type": "reasoning", **THOUGHTS, "status": "completed"},
        ),
    ],
    ids=["short", "chat's part", "replayed", "the assistant's", "reasoning"],
)
def test_an_item_is_listed_in_one_form_however_it_was_sent(item: Json, shown: Json) -> None:
    (again,) = listed(item)
    assert {key: again[key] for key in again if key != "id"} == shown


# --- updates and tools ---


def test_an_update_changes_the_effort_and_the_last_one_holds() -> None:
    updates = [{"type": "configuration_update", "reasoning": {"effort": effort}} for effort in ("low", "high")]
    made = prompt(input=[USER, *updates, USER])

    assert read(input=[USER, *updates, USER]).effort == "high"
    assert "Reasoning: high" in decode(made.tokens)
    assert len([message for message in made.messages if message.tokens]) == 2


def test_added_tools_are_called_like_the_request_s_own() -> None:
    added = {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "extra"}]}
    made = prompt(input=[added, USER], tools=[{"type": "function", "name": "own"}])

    assert [callee.name for callee in made.rules.callees] == ["own", "extra"]
    assert "type extra" in decode(made.tokens)
    assert listed(added)[0]["tools"] == added["tools"]


def test_the_key_of_an_added_server_is_not_listed() -> None:
    server = {"type": "mcp", "server_label": "clock", "server_url": "https://example.com", "authorization": "hush"}
    assert "hush" not in str(listed({"type": "additional_tools", "role": "developer", "tools": [server]}))


# --- references ---

KEPT: dict[str, Json] = {"msg_1": {"type": "message", "id": "msg_1", "role": "assistant", "content": "Yes."}}


def test_a_reference_is_the_item_that_is_stored() -> None:
    for sent in ({"type": "item_reference", "id": "msg_1"}, {"id": "msg_1"}):
        assert prompt(input=[sent, USER], stored=KEPT).messages == prompt(input=[*KEPT.values(), USER]).messages


def test_what_says_how_one_request_is_served_is_never_referred_to() -> None:
    update = {"type": "configuration_update", "reasoning": {"effort": "low"}}
    for item in ({"type": "additional_tools", "tools": []}, update, {"type": "compaction_trigger"}):
        error = refusal({"id": "x_1"}, USER, stored={"x_1": item})
        assert (error.param, error.code) == ("input[0].id", "invalid_value")
        assert str(item["type"]) in error.message


# --- files and images ---

IMAGE_PART: Json = {"type": "input_image", "image_url": "https://example.com/a.png", "detail": "high"}


def file(content: bytes = b"Milk\nBread", **members: Any) -> Json:
    return {"type": "input_file", "filename": "list.txt", "file_data": b64encode(content).decode(), **members}


def said(*parts: Json, **options: Any) -> str:
    """The words of a user's message that the model reads."""
    made = prompt(input=[{"role": "user", "content": list(parts)}], **options)
    return decode(made.tokens).rpartition("message.user")[2].removesuffix("assistant")


def test_a_file_stands_between_two_lines_with_its_name_and_an_image_leaves_a_line() -> None:
    ask, milk = {"type": "input_text", "text": "What is this?"}, b64encode(b"Milk").decode()
    told = "What is this?\n[File: list.txt]\nMilk\nBread\n[End of file: list.txt]\nWhat is this?"
    assert said(ask, file(), ask) == told
    for kind in ("text/plain", "text/csv;charset=utf-8", ""):
        coded = file(file_data=f"data:{kind};base64,{milk}", filename=None)
        assert said(coded) == "[File: file]\nMilk\n[End of file: file]"
    assert said(ask, IMAGE_PART) == f"What is this?\n{IMAGE}"


@given(words=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=200))
def test_any_text_is_read_as_it_is(words: str) -> None:
    content = words.encode()
    if not content.startswith(b"%PDF-"):
        assert said(file(content)).removeprefix("[File: list.txt]\n").startswith(words)


def test_images_are_refused_where_that_is_set() -> None:
    error = refusal({"role": "user", "content": [IMAGE_PART]}, refuses=True)
    assert (error.param, error.code) == ("input[0].content[0].type", "unsupported_parameter")


# --- items and histories as nobody should send them ---

SEALED = ENVELOPES.seal(sealed.COMPACTION, sealed.compaction("So far."))
NAMES = ("id", "role", "content", "call_id", "name", "namespace", "arguments", "input", "output", "outputs", "code")
MORE = (
    "summary",
    "encrypted_content",
    "status",
    "phase",
    "server_label",
    "error",
    "tools",
    "reasoning",
    "text",
    "action",
)
KINDS = ("input_text", "output_text", "text", "refusal", "input_image", "input_file", "logs", "x")
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "text": st.text(max_size=5) | st.none(),
        "refusal": st.just("No."),
        "image_url": st.just("https://example.com/a.png"),
        "file_data": st.sampled_from(["TWlsaw==", "!", "data:;base64,TWlsaw=="]),
        "logs": st.text(max_size=5),
    },
)
VALUE: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.text(max_size=8),
    st.sampled_from(
        ["user", "assistant", "tool", "developer", "call_1", "call_2", "functions.f", "f", SEALED, "final"]
    ),
    st.lists(PART | st.text(max_size=3), max_size=3),
    st.fixed_dictionaries({}, optional={"effort": st.just("low"), "format": st.just({"type": "text"})}),
    st.just({"message": "Gone."}),
    st.just([{"type": "function", "name": "f"}]),
)
ITEM: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {}, optional={"type": st.sampled_from([*READERS, "song"]) | VALUE, **dict.fromkeys((*NAMES, *MORE), VALUE)}
)
MESSAGE: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "bard"])},
    optional={
        "content": VALUE,
        "channel": st.sampled_from(["analysis", "commentary", "final", "loud"]) | VALUE,
        "recipient": st.sampled_from(["functions.f", "f", "assistant", "all"]) | VALUE,
        "name": VALUE,
        "author": st.just({"role": "tool"}) | VALUE,
        "tool_call_id": VALUE,
        "reasoning": VALUE,
        "tool_calls": st.just([{"id": "call_1", "function": {"name": "f", "arguments": "{}"}}]) | VALUE,
    },
)
MENDED: list[Json] = [USER, CALL, output("function_call_output")]


def made_of(**body: Any) -> Prompt | str:
    """The prompt, or the name of what the request is refused for."""
    try:
        return prompt(**body)
    except InvalidRequest as refusal:
        return refusal.param or ""


@given(items=st.lists(ITEM | st.sampled_from(MENDED), max_size=4), auto=st.booleans())
@example(items=[{"type": "mcp_call", "server_label": "x", "name": "y", "arguments": "", "error": 5}], auto=False)
def test_any_items_are_read_or_refused_by_name(items: list[Json], auto: bool) -> None:
    made = made_of(input=items, truncation="auto" if auto else "disabled")
    if isinstance(made, str):
        assert made.startswith("input")
        return
    identify(made.items, RESPONSE_ID)
    assert len(msgspec.json.decode(msgspec.json.encode(made.items))) == len(items)
    assert len({item.id for item in made.items}) == len(items)


@given(history=st.lists(MESSAGE, max_size=4), items=st.lists(st.sampled_from(MENDED), max_size=3))
def test_any_history_is_read_or_refused_by_name(history: list[Json], items: list[Json]) -> None:
    made = made_of(input=items, previous_input_messages=history)
    if isinstance(made, str):
        assert made.startswith(("input", "previous_input_messages"))
        return
    assert all(message.name for message in made.messages if message.role == "tool")


# --- ids of items, derived from the response's, and traced back to it ---


def test_an_id_that_we_did_not_make_leads_nowhere() -> None:
    digits = RESPONSE_ID[5:]
    for foreign in ("", "msg_", "msg_123", f"msg{digits}0000", f"x_{digits}0000", f"{RESPONSE_ID}0000", "_"):
        assert response_of(foreign) is None


@given(kind=st.sampled_from(["message", "reasoning", "function_call"]), index=st.integers(0, MAX_OUTPUT_ITEMS - 1))
def test_an_id_says_where_its_item_stands(kind: str, index: int) -> None:
    assert place_of(output_item_id(RESPONSE_ID, kind, index)) == ItemIndex(RESPONSE_ID, False, index)
    assert place_of(input_item_id(RESPONSE_ID, kind, index)) == ItemIndex(RESPONSE_ID, True, index)
