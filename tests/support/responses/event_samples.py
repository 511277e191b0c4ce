"""Events of every kind as hypothesis strategies, in any order and with any members, as no machine would make them."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from service.api import events
from service.api.events import Event
from service.api.response import (
    CodeInterpreterCall,
    Compaction,
    CustomToolCall,
    FileSearchCall,
    FunctionCall,
    IncompleteDetails,
    InputTokensDetails,
    Logprob,
    McpCall,
    Message,
    OutputText,
    OutputTokensDetails,
    Reasoning,
    ReasoningText,
    Response,
    ResponseError,
    ResponseStatus,
    ShellCall,
    SummaryText,
    ToolSearchCall,
    TopLogprob,
    Usage,
    WebSearchCall,
)
from tests.support.responses import samples

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
counts = st.integers(0, 2**40)
item_statuses = st.sampled_from(["in_progress", "completed", "incomplete"])
digits = samples.RESPONSE_ID[5:]
lookalikes = ["msg_", "x", f"msg_{digits.upper()}", "fc_ab cd", "rs_0", "msg_ümlaut"]
item_ids = texts | st.sampled_from(
    [
        *(f"{prefix}{digits}{index:04x}" for prefix in ("msg_", "rs_", "fc_", "ctc_", "mcp_") for index in (0, 10)),
        *lookalikes,
    ]
)
"""Ours, with the prefix of another kind too, and some that only look like ours."""

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | texts | st.integers(-(2**70), 2**70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
"""What stands in tools: a schema's bounds may be larger than any word of a machine."""

optional = st.just(msgspec.UNSET) | texts
chances = st.floats(-9999, 0)


def as_raw(value: Any) -> msgspec.Raw:
    """Its JSON, as an item keeps it."""
    return msgspec.Raw(msgspec.json.encode(value))


item_logprobs = st.builds(
    Logprob, texts, chances, st.just([97]), st.lists(st.builds(TopLogprob, texts, chances, st.just([98])), max_size=1)
)
text_parts = st.builds(OutputText, texts, logprobs=st.lists(item_logprobs.map(as_raw), max_size=1))
reasoning_parts = st.builds(ReasoningText, texts)
summary_parts = st.builds(SummaryText, texts)
errors = st.none() | st.just({"type": "mcp_protocol_error", "code": -32601, "message": "?"})
items = st.one_of(
    st.builds(Message, item_ids, item_statuses, st.just("commentary"), st.lists(text_parts, max_size=1)),
    st.builds(
        Reasoning,
        item_ids,
        item_statuses,
        st.lists(reasoning_parts, max_size=1),
        st.lists(summary_parts, max_size=1),
        optional,
    ),
    st.builds(FunctionCall, item_ids, texts, texts, texts, item_statuses, optional),
    st.builds(CustomToolCall, item_ids, texts, texts, texts, item_statuses, optional),
    st.builds(CodeInterpreterCall, item_ids, texts, item_statuses),
    st.builds(WebSearchCall, item_ids, item_statuses, st.just(msgspec.UNSET) | st.just({"type": "search"})),
    st.builds(FileSearchCall, item_ids, st.lists(texts, max_size=2), item_statuses, st.none() | st.just([{"a": 1}])),
    st.builds(McpCall, item_ids, texts, texts, texts, item_statuses, st.none(), errors),
    st.builds(Compaction, item_ids, texts),
    st.builds(ShellCall, item_ids, texts, st.just({"commands": ["ls"]}), item_statuses),
    st.builds(ToolSearchCall, item_ids, texts, st.just({"query": "x"}), item_statuses),
)
usages = st.builds(
    Usage, counts, st.builds(InputTokensDetails, counts), counts, st.builds(OutputTokensDetails, counts), counts
)


@st.composite
def _responses(draw: st.DrawFn) -> Response:
    return msgspec.structs.replace(
        samples.created(),
        status=draw(st.sampled_from(ResponseStatus)),
        instructions=draw(st.none() | texts),
        tools=draw(st.lists(json_values, max_size=2)),
        metadata=draw(st.dictionaries(texts, texts, max_size=2)),
        temperature=draw(st.floats(0, 2)),
        output=draw(st.lists(items, max_size=2)),
        usage=draw(st.none() | usages),
        error=draw(st.none() | st.builds(ResponseError, texts, texts)),
        incomplete_details=draw(st.none() | st.just(IncompleteDetails("no_output"))),
        completed_at=draw(st.none() | counts),
        background=draw(st.booleans()),
    )


responses = _responses()
_LIFECYCLE = (
    events.ResponseCreated,
    events.ResponseQueued,
    events.ResponseInProgress,
    events.ResponseCompleted,
    events.ResponseIncomplete,
    events.ResponseFailed,
)
_CALLS_TEXTS = (
    events.CustomToolCallInputDelta,
    events.CustomToolCallInputDone,
    events.CodeInterpreterCallCodeDelta,
    events.CodeInterpreterCallCodeDone,
    events.McpCallArgumentsDelta,
    events.McpCallArgumentsDone,
)
_CALLS_STATES = (
    events.CodeInterpreterCallInProgress,
    events.CodeInterpreterCallInterpreting,
    events.CodeInterpreterCallCompleted,
    events.WebSearchCallSearching,
    events.WebSearchCallCompleted,
    events.WebSearchCallInProgress,
    events.FileSearchCallSearching,
    events.FileSearchCallCompleted,
    events.FileSearchCallInProgress,
    events.McpCallInProgress,
    events.McpCallFailed,
)
_COMMANDS = (events.ShellCallCommandAdded, events.ShellCallCommandDelta, events.ShellCallCommandDone)
places = st.integers(0, 2)
logprobs = st.just(()) | st.just((events.StreamedLogprob("a", -0.5),))
done_logprobs = logprobs.map(lambda each: tuple(map(as_raw, each)))
parts = text_parts | reasoning_parts
any_event: st.SearchStrategy[Event] = st.one_of(
    st.builds(events.OutputTextDelta, item_ids, places, st.just(0), texts),
    st.builds(events.OutputTextDelta, item_ids, places, places, texts, logprobs),
    st.builds(events.ReasoningTextDelta, item_ids, places, places, texts),
    st.builds(events.OutputTextAnnotationAdded, item_ids, places, places, places, st.just({"type": "url_citation"})),
    st.builds(events.FunctionCallArgumentsDelta, item_ids, places, texts),
    st.builds(events.OutputTextDone, item_ids, places, places, texts, done_logprobs),
    st.builds(events.ReasoningTextDone, item_ids, places, places, texts),
    st.builds(events.FunctionCallArgumentsDone, item_ids, places, texts, texts),
    st.builds(events.ContentPartAdded, item_ids, places, places, parts),
    st.builds(events.ContentPartDone, item_ids, places, places, parts),
    st.builds(events.OutputItemAdded, places, items),
    st.builds(events.OutputItemDone, places, items),
    *(st.builds(kind, item_ids, places, places, texts) for kind in _COMMANDS),
    st.builds(events.SummaryPartAdded, item_ids, places, places, summary_parts),
    st.builds(events.SummaryPartDone, item_ids, places, places, summary_parts),
    *(st.builds(kind, item_ids, places, places, texts) for kind in (events.SummaryTextDelta, events.SummaryTextDone)),
    *(st.builds(kind, item_ids, places, texts) for kind in _CALLS_TEXTS),
    *(st.builds(kind, item_ids, places) for kind in _CALLS_STATES),
    st.builds(events.Error, st.none() | texts, texts, st.none() | texts),
    *(st.builds(kind, response=responses) for kind in _LIFECYCLE),
)


def numbered(batch: list[Event], first: int) -> list[Event]:
    """The events with numbers that follow each other."""
    for number, event in enumerate(batch, first):
        event.sequence_number = number
    return batch


batches = st.builds(numbered, st.lists(any_event, min_size=1, max_size=8), st.integers(0, 2**40))
