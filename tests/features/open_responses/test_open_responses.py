"""The translation into the Open Responses dialect: each event becomes one that the specification has, no key more."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from service.api import events
from service.api.events import Event
from service.api.response import (
    Compaction,
    CustomToolCall,
    FunctionCall,
    InputTokensDetails,
    Item,
    Logprob,
    McpCall,
    Message,
    OutputText,
    OutputTokensDetails,
    Reasoning,
    ReasoningText,
    Response,
    ResponseStatus,
    ShellCall,
    SteerShown,
    SummaryText,
    ToolSearchCall,
    TopLogprob,
    Usage,
)
from service.features.open_responses.dialect import OPEN_RESPONSES
from service.features.open_responses.shapes import open_response
from service.responses.output.machine import Ending
from service.responses.output.rules import Rules
from tests.support.oracles import open_responses
from tests.support.responses import samples

Json = dict[str, Any]
LOGPROB = msgspec.Raw(msgspec.json.encode(Logprob("hi", -0.5, [104, 105], [TopLogprob("ho", -1.0, [104, 111])])))
ITEMS: dict[str, Item] = {
    "message": Message("msg_1", "completed", "final_answer", [OutputText("hi", logprobs=[LOGPROB])]),
    "reasoning": Reasoning("rs_1", "completed", [ReasoningText("hm")], [SummaryText("so")], "sealed"),
    "function_call": FunctionCall("fc_1", "call_1", "f", "{}", "completed", "crm"),
    "custom_tool_call": CustomToolCall("ctc_1", "call_1", "sh", "ls -l", "completed"),
    "mcp_call": McpCall("mcp_1", "files", "read", '{"a":1}', "failed", error={"type": "x"}),
    "compaction": Compaction("cmp_1", "sealed"),
    "tool_search_call": ToolSearchCall("tsc_1", "call_1", {"query": "x"}, "completed"),
    "shell_call": ShellCall("sh_1", "call_1", {"commands": ["ls"], "timeout_ms": None}, "completed"),
}
TOOLS = [
    {"type": "function", "name": "f", "description": None, "parameters": {"type": "object"}, "strict": True},
    {"type": "custom", "name": "sh", "description": "A shell.", "format": {"type": "text"}},
    {"type": "web_search"},
    {"type": "shell"},
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": "tool_search", "execution": "client"},
    {"type": "tool_search"},
    {"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "g", "parameters": {}, "defer": 1}]},
]
FORMAT = {"type": "json_schema", "name": "a", "schema": {"type": "object"}, "strict": None, "description": None}
MEMBERS: Json = {
    "item_id": "x_1",
    "delta": "more %b",
    "arguments": "{}",
    "input": "ls",
    "code": "print(1)",
    "command": "ls",
    "text": "all",
    "name": "f",
    "steer": SteerShown("resp_1", "steer_1", msgspec.Raw(b'"response.steer.failed"')),
    "message": "It was cancelled.",
    "annotation": {"type": "url_citation"},
}


def plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def response(**changes: Any) -> Response:
    """A response with an item of each kind and tools of each kind."""
    usage = Usage(3, InputTokensDetails(1, 0, [3], [1]), 4, OutputTokensDetails(2, 0, [4], [0]), 7)
    members: Json = {
        "status": ResponseStatus.COMPLETED,
        "tools": TOOLS,
        "reasoning": {"effort": "minimal", "summary": None},
        "output": list(ITEMS.values()),
        "usage": usage,
        "prompt": {"id": "greeting"},
        "input_messages": [],
    }
    return msgspec.structs.replace(samples.created(), **members | changes)


def made(kind: type[Event]) -> Event:
    """An event of a kind, with every member that it must have."""
    members: Json = {"sequence_number": 7}
    for field in msgspec.structs.fields(kind):
        if field.name == "item":
            members["item"] = ITEMS["mcp_call"]
        elif field.name == "part":
            members["part"] = SummaryText("") if "summary_index" in kind.__struct_fields__ else OutputText("")
        elif field.name == "response":
            members["response"] = response()
        elif field.name.endswith("_index"):
            members[field.name] = 0
        elif field.required and kind is not events.Error:
            members[field.name] = MEMBERS[field.name]
    if kind is events.Error:
        members |= {"code": "server_error", "message": "It broke."}
    return kind(**members)


def written(*batch: Event, obfuscate: bool = False) -> list[Json]:
    """The events as they go over the wire."""
    buffer = bytearray()
    OPEN_RESPONSES.encoder(obfuscate=obfuscate).append(batch, buffer)
    sent: list[Json] = []
    for block in buffer.decode().removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        sent.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {sent[-1]['type']}"
    return sent


def test_each_event_becomes_one_of_the_specification_s_with_its_number() -> None:
    for kind in events.KINDS:
        for obfuscate in (False, True):
            (sent,) = written(made(kind), obfuscate=obfuscate)
            open_responses.check_event(sent)
            assert sent["sequence_number"] == 7, kind


def test_a_response_has_the_specification_s_keys_and_no_other() -> None:
    named = [{"type": "custom", "name": "sh"}, {"type": "mcp"}]
    for choice in ("required", named[0], {"type": "allowed_tools", "mode": "auto", "tools": named}):
        whole = response(tool_choice=choice, text={"format": FORMAT, "verbosity": "low"}, reasoning={"effort": "max"})
        open_responses.check_response(open_response(plain(whole)))


def test_the_tools_of_a_namespace_are_shown_one_by_one_and_hosted_ones_not_at_all() -> None:
    shown = open_response(plain(response()))["tools"]
    assert [tool["name"] for tool in shown] == ["f", "sh", "shell", "tool_search", "g"]


@given(samples.streams, samples.all_rules, st.sampled_from(Ending), st.booleans())
def test_whatever_is_sampled_streams_by_the_specification(
    ids: list[int], rules: Rules, ending: Ending, background: bool
) -> None:
    events = samples.run(samples.machine(rules), [ids], ending, background=background)
    sent = written(*events, obfuscate=background)
    final = open_responses.check_stream(sent)
    assert len(sent) == len(events)
    assert final["output"] == [event["item"] for event in sent if event["type"] == "response.output_item.done"]
