"""The events of a response stream: what the machine yields, the fold consumes and the edge encodes.

`sequence_number` is stamped once, by the machine, before anybody else sees an event; after that none is changed.
Shapes and order: the Responses API as openai 3.51 types it. Encoding belongs to the edge.
"""

import msgspec

from service.api.response import Item, OutputText, ReasoningText, Response, SummaryText

UNSTAMPED = -1


class TopLogprob(msgspec.Struct, frozen=True):
    """As in the item, but without bytes."""

    token: str
    logprob: float


class Logprob(msgspec.Struct, frozen=True):
    """As in the item, but without bytes."""

    token: str
    logprob: float
    top_logprobs: tuple[TopLogprob, ...] = ()


class Event(msgspec.Struct, tag_field="type", kw_only=True):
    """What all events share."""

    sequence_number: int = UNSTAMPED


class ResponseCreated(Event, tag="response.created"):
    """The first event: the response with its configuration and no output."""

    response: Response


class ResponseQueued(Event, tag="response.queued"):
    """A background response waits for a worker."""

    response: Response


class ResponseInProgress(Event, tag="response.in_progress"):
    """Sampling begins."""

    response: Response


class ResponseCompleted(Event, tag="response.completed"):
    """Terminal: the model ended by itself."""

    response: Response


class ResponseIncomplete(Event, tag="response.incomplete"):
    """Terminal: a budget ended it, or nothing was said."""

    response: Response


class ResponseFailed(Event, tag="response.failed"):
    """Terminal: an error, or a cancel (then the response's status is cancelled)."""

    response: Response


class Error(Event, tag="error"):
    """What went wrong, just before `response.failed`. Flat, as the SDK types it: a nested one makes the SDK raise."""

    code: str | None
    message: str
    param: str | None = None


class OutputItemAdded(Event, tag="response.output_item.added"):
    """An item begins, empty."""

    output_index: int
    item: Item


class OutputItemDone(Event, tag="response.output_item.done"):
    """An item ends, with its whole payload."""

    output_index: int
    item: Item


class ContentPartAdded(Event, tag="response.content_part.added"):
    """A content part begins, empty."""

    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class ContentPartDone(Event, tag="response.content_part.done"):
    """A content part ends, whole."""

    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class OutputTextDelta(Event, tag="response.output_text.delta", gc=False):
    """Some more text of a message."""

    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: tuple[Logprob, ...] = ()


class OutputTextDone(Event, tag="response.output_text.done"):
    """The whole text of a message's part. Of its `logprobs` each is the JSON of a Logprob, as in the part."""

    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: tuple[msgspec.Raw, ...] = ()


class ReasoningTextDelta(Event, tag="response.reasoning_text.delta", gc=False):
    """Some more reasoning."""

    item_id: str
    output_index: int
    content_index: int
    delta: str


class ReasoningTextDone(Event, tag="response.reasoning_text.done"):
    """The whole text of a reasoning part."""

    item_id: str
    output_index: int
    content_index: int
    text: str


class FunctionCallArgumentsDelta(Event, tag="response.function_call_arguments.delta", gc=False):
    """Some more of a call's arguments."""

    item_id: str
    output_index: int
    delta: str


class FunctionCallArgumentsDone(Event, tag="response.function_call_arguments.done"):
    """A call's whole arguments."""

    item_id: str
    output_index: int
    name: str
    arguments: str


class SummaryPartAdded(Event, tag="response.reasoning_summary_part.added"):
    """A part of a summary begins, empty."""

    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class SummaryPartDone(Event, tag="response.reasoning_summary_part.done"):
    """A part of a summary ends, whole."""

    item_id: str
    output_index: int
    summary_index: int
    part: SummaryText


class SummaryTextDelta(Event, tag="response.reasoning_summary_text.delta", gc=False):
    """Some more of a summary."""

    item_id: str
    output_index: int
    summary_index: int
    delta: str


class SummaryTextDone(Event, tag="response.reasoning_summary_text.done"):
    """The whole text of a summary's part."""

    item_id: str
    output_index: int
    summary_index: int
    text: str


class CustomToolCallInputDelta(Event, tag="response.custom_tool_call_input.delta", gc=False):
    """Some more of a custom tool's input."""

    item_id: str
    output_index: int
    delta: str


class CustomToolCallInputDone(Event, tag="response.custom_tool_call_input.done"):
    """A custom tool's whole input."""

    item_id: str
    output_index: int
    input: str


class CodeInterpreterCallInProgress(Event, tag="response.code_interpreter_call.in_progress"):
    """The model begins to write code."""

    item_id: str
    output_index: int


class CodeInterpreterCallCodeDelta(Event, tag="response.code_interpreter_call_code.delta", gc=False):
    """Some more code."""

    item_id: str
    output_index: int
    delta: str


class CodeInterpreterCallCodeDone(Event, tag="response.code_interpreter_call_code.done"):
    """The whole code."""

    item_id: str
    output_index: int
    code: str


class WebSearchCallInProgress(Event, tag="response.web_search_call.in_progress"):
    """The model begins to say what it wants of a browser."""

    item_id: str
    output_index: int


class McpCallInProgress(Event, tag="response.mcp_call.in_progress"):
    """The model begins to call a tool."""

    item_id: str
    output_index: int


class McpCallArgumentsDelta(Event, tag="response.mcp_call_arguments.delta", gc=False):
    """Some more of the arguments."""

    item_id: str
    output_index: int
    delta: str


class McpCallArgumentsDone(Event, tag="response.mcp_call_arguments.done"):
    """The whole arguments."""

    item_id: str
    output_index: int
    arguments: str


class McpCallFailed(Event, tag="response.mcp_call.failed"):
    """Nobody could run the call."""

    item_id: str
    output_index: int


Terminal = ResponseCompleted | ResponseIncomplete | ResponseFailed
Delta = (
    OutputTextDelta
    | ReasoningTextDelta
    | FunctionCallArgumentsDelta
    | SummaryTextDelta
    | CustomToolCallInputDelta
    | CodeInterpreterCallCodeDelta
    | McpCallArgumentsDelta
)
