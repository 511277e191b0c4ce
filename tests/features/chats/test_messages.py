"""Requests of Anthropic's Messages as those of the Responses API that they become, and messages made of responses."""

import json
import re
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.api.request import ChatBody, CreateBody, CreateRequest, read_create
from service.api.response import FunctionCall, Item, Message, OutputText, Reasoning, ReasoningText
from service.errors import ApiError, InvalidRequest
from service.features.chats.chat import ChatLimits, TranslatedChat
from service.features.chats.messages import AS_SENT, MAX_REWRITTEN_BYTES, block_of, read_messages
from service.features.chats.recognise import digest_after, seen_of, speaker_of
from service.responses.seal import Sealer
from service.responses.seen import Seen
from service.steps import in_one_go
from tests.support.responses.requests import read_checked

LIMITS = ChatLimits(messages=16, tools=4, tools_bytes=1000)
HI = {"role": "user", "content": "hi"}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
USE: dict[str, Any] = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT: dict[str, Any] = {"type": "tool_result", "tool_use_id": "a", "content": "done"}
CALLED = {"role": "assistant", "content": [USE]}
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
SEALER = Sealer("acme", [b"k" * 32])


def translate(*messages: Any, refuses: bool = False, **members: Any) -> TranslatedChat:
    body = {"model": "m", "max_tokens": 9, "messages": list(messages) or [HI], **members}
    return in_one_go(read_messages(json.dumps(body).encode(), LIMITS._replace(refuses=refuses), counts=False))


def created(*messages: Any, **members: Any) -> CreateRequest:
    return read_create(translate(*messages, **members).body, store=True, kind=ChatBody)


def items(*messages: Any) -> list[Any]:
    return msgspec.json.decode(created(*messages).input)


def heard(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def refusal(body: dict[str, Any], *, refuses: bool = False) -> ApiError | None:
    """How a request is refused by the readers, in the client's names; `refuses` is said of histories."""
    told = None
    try:
        told = translate(**body, refuses=refuses)
        read_checked(read_create(told.body, store=True, kind=ChatBody), refuses=refuses)
    except ApiError as error:
        if told is not None:
            told.names.rename(error)
        return error
    return None


def test_a_conversation_becomes_items_in_its_order() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "of another service"}
    said = {"role": "assistant", "content": [thought, text("I look."), USE | {"input": {"x": 1}}]}
    results = heard(RESULT, text("So"), text(" what?"))
    system = {"role": "system", "content": "Be kind."}
    assert items(HI, said, results, {"role": "assistant", "content": "Fine."}, HI, system) == [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": "I look.", "phase": "commentary"},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x": 1}'},
        {"type": "function_call_output", "call_id": "a", "output": "done"},
        {"type": "message", "role": "user", "content": [text("So"), text(" what?")]},
        {"type": "message", "role": "assistant", "content": "Fine."},
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "message", "role": "developer", "content": "Be kind."},
    ]


def test_the_system_prompt_and_leading_system_messages_are_the_instructions() -> None:
    blocks = [text("a") | {"cache_control": {"type": "ephemeral"}}, text("b")]
    assert created({"role": "system", "content": "c"}, HI, system=blocks).instructions == "a\n\nb\n\nc"
    assert created(HI, system="a").instructions == "a"
    assert created(HI).instructions is None


BILLED = "x-anthropic-billing-header: cc_version=2.1.153.d02; cc_entrypoint=sdk-cli; cch=0004d;"


def test_the_billers_line_is_in_no_prompt_wherever_it_stands_and_all_else_is() -> None:
    for rules in ("Be brief.", "Say x-anthropic-billing-header: once.\n\nBe brief."):
        for system in (
            f"{BILLED}\n{rules}",
            f"{BILLED} {rules}",
            [text(f"{BILLED}\n"), text(rules)],
            [text(f"{BILLED}\n\n{rules}")],
        ):
            assert created(HI, system=system).instructions == rules, system
            assert created({"role": "system", "content": system}, HI).instructions == rules, system
        assert created(HI, system=f"You are kind.\n{BILLED}\n{rules}").instructions == f"You are kind.\n{rules}"
    late = {"role": "system", "content": f"{BILLED}\nBe brief."}
    assert read_checked(created(HI, CALLED, heard(RESULT), late)).items[-1].text == "Be brief."
    assert items(heard(text(BILLED)))[0]["content"] == [text(BILLED)]


def test_a_signature_of_ours_is_sealed_reasoning_and_any_other_is_none() -> None:
    sealed = {"type": "thinking", "thinking": "", "signature": "hs_x"}
    hidden = {"type": "redacted_thinking", "data": "hs_y"}
    nothing = {"type": "thinking", "thinking": "", "signature": "y"}
    foreign = {"type": "redacted_thinking", "data": "Er4B"}
    reasoning = items(HI, {"role": "assistant", "content": [sealed, hidden, nothing, foreign, text("")]}, HI)[1:-1]
    assert [item.get("encrypted_content") for item in reasoning] == ["hs_x", "hs_y"]
    said = {"role": "assistant", "content": [sealed, nothing, foreign, nothing | {"signature": ""}]}
    assert list(translate(HI, said, HI).left_out) == ["thinking", "redacted_thinking"]


def test_files_have_the_forms_of_items() -> None:
    url = {"type": "image", "source": {"type": "url", "url": "https://a.b/c.png"}}
    plain = {"type": "document", "title": "a.txt", "source": {"type": "text", "media_type": "text/plain", "data": "é"}}
    assert items(heard({"type": "image", "source": PNG}, url, plain))[0]["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_image", "image_url": "https://a.b/c.png"},
        {"type": "input_file", "filename": "a.txt", "file_data": "w6k="},
    ]


def test_a_result_is_a_text_or_parts_and_says_that_it_is_an_error() -> None:
    error = text("Error: ")
    for given_, output in (
        ({}, "done"),
        ({"content": []}, []),
        ({"is_error": True}, [error, text("done")]),
        ({"is_error": True, "content": [text("x")]}, [error, text("x")]),
    ):
        told = [HI, CALLED, heard(RESULT | given_)]
        assert items(*told)[2]["output"] == output
        read_checked(created(*told, tools=[TOOL]))


def test_members_go_where_the_responses_api_has_them() -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    request = created(
        stop_sequences=["x"],
        thinking={"type": "enabled", "budget_tokens": 2048},
        output_config={"format": {"type": "json_schema", "schema": schema}},
        metadata={"user_id": "me"},
        stream=True,
        top_k=5,
        service_tier="standard_only",
        cache_control={"type": "ephemeral"},
        store=False,
    )
    assert (request.max_output_tokens, request.stop, request.effort, request.user) == (9, ("x",), "low", "me")
    assert msgspec.json.decode(request.format)["schema"] == schema
    assert (request.stream, request.sampling.top_k, request.store) == (True, 5, False)
    assert set(AS_SENT) <= {field.name for field in msgspec.structs.fields(CreateBody)}


def test_thinking_is_an_effort_and_shown_where_it_is_wanted() -> None:
    for thinking, effort, shown in (
        (None, "medium", "hidden"),
        ({"type": "disabled"}, "none", "hidden"),
        ({"type": "adaptive", "display": "omitted"}, "medium", "omitted"),
        ({"type": "enabled", "budget_tokens": 4095}, "low", "shown"),
        ({"type": "enabled", "budget_tokens": 16384, "display": "summarized"}, "high", "shown"),
    ):
        told = translate(HI, thinking=thinking)
        request = read_create(told.body, store=True, kind=ChatBody)
        assert (request.effort, told.thinking) == (effort, shown)
        assert ("reasoning.encrypted_content" in request.include) == (shown != "hidden")


def content(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [HI, {"role": role, "content": list(blocks)}, HI]}


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "no limit": ({"max_tokens": None}, "max_tokens", "Missing"),
    "empty messages": ({"messages": []}, "messages", "at least one"),
    "too many messages": ({"messages": [HI] * 17}, "messages", "at most 16"),
    "an answer that is begun": (
        {"messages": [HI, {"role": "assistant", "content": "I"}]},
        "messages[1].role",
        "the user's",
    ),
    "a call of the server's": (
        content({"type": "server_tool_use"}, role="assistant"),
        "messages[1].content[0].type",
        "server_tool_use",
    ),
    "a picture in a file": (
        content({"type": "image", "source": {"type": "file", "file_id": "x"}}),
        "messages[1].content[0].source.file_id",
        "no file with this id",
    ),
    "a result in a result": (
        {"messages": [HI, CALLED, heard(RESULT | {"content": [RESULT]})]},
        "messages[2].content[0].content[0].type",
        "tool_result",
    ),
    "a document to be cited": (
        content({"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}),
        "messages[1].content[0].citations",
        "texts",
    ),
    "a long document": (
        content({"type": "document", "source": {"type": "text", "data": "x" * (MAX_REWRITTEN_BYTES + 1)}}),
        "messages[1].content[0].source.data",
        f"At most {MAX_REWRITTEN_BYTES}",
    ),
    "a call of a strange name": (
        content(USE | {"name": "<|call|>"}, role="assistant"),
        "messages[1].content[0].name",
        "<|call|>",
    ),
    "a strange member": ({"max_output_tokens": 5}, "max_output_tokens", "Unknown"),
    "thinking of no budget": ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens", "adaptive"),
    "tools that are cleared": (
        {"context_management": {"edits": [{"type": "clear_thinking_20251015"}, {"type": "clear_tool_uses_20250919"}]}},
        "context_management.edits[1].type",
        "clear_tool_uses",
    ),
    "a budget of a task": (
        {"output_config": {"task_budget": {"type": "tokens", "total": 20_000}}},
        "output_config.task_budget",
        "not supported",
    ),
    "more blocks than there may be items": (
        {"messages": [HI, {"role": "assistant", "content": [text("a")] * 16}, HI]},
        "messages",
        "too many items, at 'messages[1].content[15]'. A message",
    ),
    "a tool of Anthropic's": ({"tools": [{"type": "web_search_20250305"}]}, "tools[0].type", "web_search"),
    "a tool without a schema": ({"tools": [TOOL | {"input_schema": None}]}, "tools[0].input_schema", "Missing"),
    "a tool of a strange name": ({"tools": [TOOL | {"name": "<|end|>"}]}, "tools[0].name", "<|end|>"),
    "a choice of no tool": ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice.name", "g"),
}


HISTORIES = {
    *("a call of the server's", "a result in a result", "a call of a strange name", "a tool of Anthropic's"),
    *("tools that are cleared", "a budget of a task"),
}
"""Those that nobody can change, or an answer is as good without: they are refused only where that is asked for."""


def test_what_an_answer_is_as_good_without_is_named() -> None:
    edits, output = BAD["tools that are cleared"][0], BAD["a budget of a task"][0]
    assert list(translate(**edits, **output).left_out) == ["clear_tool_uses_20250919", "task_budget"]
    assert not list(translate(output_config={"task_budget": None}).left_out)


def test_a_bad_request_is_refused_in_its_own_words() -> None:
    for name, (body, param, words) in BAD.items():
        error = refusal(body)
        assert (error is None) == (name in HISTORIES), name
        error = error or refusal(body, refuses=True)
        assert error is not None
        assert (error.status, error.param) == (400, param), (name, error.message)
        assert words in error.message, (name, error.message)
        assert not re.search(r"input\[|text\.format|instructions|encrypted_content", error.message), name


# --- there and back ---

WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WORDS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(WORDS, inside, max_size=3),
    max_leaves=6,
)


@st.composite
def calls(draw: st.DrawFn) -> str:
    """The arguments of a call, as a model may write them."""
    if draw(st.booleans()):
        return draw(WORDS | st.just(""))
    return json.dumps(draw(st.dictionaries(WORDS, VALUES, max_size=3)), indent=draw(st.none() | st.just(2)))


OUTPUTS = st.lists(
    st.builds(lambda said: Message("m", "completed", "final_answer", [OutputText(said)]), WORDS)
    | st.builds(lambda said: Reasoning("r", "completed", [ReasoningText(said)]), WORDS)
    | st.builds(lambda said: FunctionCall("f", "call_1", "f", said, "completed"), calls()),
    max_size=5,
)


def seen(*messages: Any) -> Seen:
    found = in_one_go(seen_of(SEALER, speaker_of(created(*messages), "", ""), created(*messages).input))
    assert found is not None
    return found


@given(OUTPUTS, st.booleans(), st.sampled_from([None, 1]))
def test_a_message_that_comes_back_is_the_turn_that_made_it(
    output: list[Item], shown: bool, indent: int | None
) -> None:
    blocks = [block for item in output if (block := block_of(item, "shown" if shown else "hidden")) is not None]
    again = json.loads(msgspec.json.encode(blocks))
    for block in again:
        if block["type"] == "tool_use":
            block["input"] = json.loads(json.dumps(block["input"], indent=indent))
    after = digest_after(seen(HI).said, output)
    results = [RESULT | {"tool_use_id": block["id"]} for block in again if block["type"] == "tool_use"]
    history = [HI, {"role": "assistant", "content": again}, heard(*results, text("hi"))]
    assert not after or seen(*history).ends[:1] == [(after, len(items(*history)) - 1 - len(results))]


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.just("\ud800"),
    lambda inside: st.lists(inside, max_size=2) | st.dictionaries(st.sampled_from([*"abc", "type", "text"]), inside),
    max_leaves=3,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all values inside of one."""
    inside = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    return [each for name, more in inside for each in ((*path, name), *places(more, (*path, name)))]


WHOLE: dict[str, Any] = {
    "messages": [
        heard(text("a"), {"type": "image", "source": PNG}),
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "y"}, text("b"), USE]},
        heard(RESULT | {"is_error": True, "content": [text("c")]}),
        {"role": "system", "content": "d"},
    ],
    "system": [text("e")],
    "tools": [TOOL],
    "tool_choice": {"type": "tool", "name": "f"},
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
    "metadata": {"user_id": "me"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015"}]},
    "stop_sequences": ["x"],
}


@given(st.sampled_from(places(WHOLE)), JUNK)
def test_junk_anywhere_is_refused_or_read_and_never_breaks_the_reader(place: tuple[Any, ...], junk: Any) -> None:
    body = json.loads(json.dumps(WHOLE))
    inside = body
    for name in place[:-1]:
        inside = inside[name]
    inside[place[-1]] = junk
    with suppress(InvalidRequest):
        read_checked(read_create(translate(**body).body, store=True, kind=ChatBody))


def test_tools_and_choices_have_the_names_of_functions() -> None:
    tool = TOOL | {"type": "custom", "description": "d", "strict": True, "cache_control": {"type": "ephemeral"}}
    flat = {"type": "function", "name": "f", "description": "d", "parameters": TOOL["input_schema"], "strict": True}
    named = {"type": "function", "name": "f"}
    for choice, given_ in {"auto": "auto", "any": "required", "none": "none", "tool": named}.items():
        sent = {"type": choice, "disable_parallel_tool_use": choice == "any"} | (
            {"name": "f"} if given_ == named else {}
        )
        request = created(HI, tools=[tool], tool_choice=sent)
        assert msgspec.json.decode(request.tools) == [flat]
        assert msgspec.json.decode(request.tool_choice) == given_
        assert request.parallel_tool_calls == (choice != "any")
