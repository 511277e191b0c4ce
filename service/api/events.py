"""The events of a response stream. The machine yields them, the fold consumes them, and the edge encodes them.

The machine stamps `sequence_number` once, before anybody else sees an event; after that no event is changed.
Shapes and order: the Responses API as openai 3.54 types it. Encoding belongs to the edge.
"""

from typing import Any

import msgspec

from service.api import response as shapes

UNSTAMPED = -1


class StreamedTopLogprob(msgspec.Struct, frozen=True):
    """As in the item, but without bytes."""

    token: str
    logprob: float


class StreamedLogprob(msgspec.Struct, frozen=True):
    """As in the item, but without bytes."""

    token: str
    logprob: float
    top_logprobs: tuple[StreamedTopLogprob, ...] = ()


class Event(msgspec.Struct, tag_field="type", kw_only=True):
    """The base of all events. The wire has the number last, and before it the fields from the widest class on."""

    sequence_number: int = UNSTAMPED


class Lifecycle(Event):
    """An event about the state of the response as a whole."""

    response: shapes.Response


class Terminal(Lifecycle):
    """The last event of a response."""


class ResponseCreated(Lifecycle, tag="response.created"):
    """The first event: the response with its configuration and no output."""


class ResponseQueued(Lifecycle, tag="response.queued"):
    """A background response waits for a worker."""


class ResponseInProgress(Lifecycle, tag="response.in_progress"):
    """Sampling begins."""


class ResponseCompleted(Terminal, tag="response.completed"):
    """The model ended by itself."""


class ResponseIncomplete(Terminal, tag="response.incomplete"):
    """A limit ended the response, or the model wrote nothing."""


class ResponseFailed(Terminal, tag="response.failed"):
    """An error, or a cancel (then the response's status is cancelled)."""


class Error(Event, tag="error"):
    """An error, just before `response.failed`. Flat, as the SDK types it: a nested one makes the SDK raise."""

    code: str | None
    message: str
    param: str | None = None


class SteerFailed(Event, tag="response.steer.failed"):
    """A steer of the running response is returned. Flat, as `Error`, and for the same reason; over a WebSocket,
    where no SDK raises, it has the `error` that the SDK types.
    """

    steer: shapes.SteerShown
    code: shapes.SteerCode
    message: str


class OutputItemAdded(Event, tag="response.output_item.added"):
    """An item begins, empty."""

    output_index: int
    item: shapes.Item


class OutputItemDone(Event, tag="response.output_item.done"):
    """An item ends, with its whole payload."""

    output_index: int
    item: shapes.Item


class ItemEvent(Event):
    """An event inside an item."""

    item_id: str
    output_index: int


class PartEvent(ItemEvent):
    """An event inside a content part."""

    content_index: int


class SummaryEvent(ItemEvent):
    """An event inside a part of a summary."""

    summary_index: int


class ContentPartAdded(PartEvent, tag="response.content_part.added"):
    """A content part begins, empty."""

    part: shapes.OutputText | shapes.ReasoningText


class ContentPartDone(PartEvent, tag="response.content_part.done"):
    """A content part ends, whole."""

    part: shapes.OutputText | shapes.ReasoningText


class OutputTextDelta(PartEvent, tag="response.output_text.delta", gc=False):
    """A piece of a message's text."""

    delta: str
    logprobs: tuple[StreamedLogprob, ...] = ()


class OutputTextDone(PartEvent, tag="response.output_text.done"):
    """The whole text of a message's part. Of its `logprobs` each is the JSON of a Logprob, as in the part."""

    text: str
    logprobs: tuple[msgspec.Raw, ...] = ()


class OutputTextAnnotationAdded(PartEvent, tag="response.output_text.annotation.added"):
    """A citation in the text so far."""

    annotation_index: int
    annotation: dict[str, Any]


class ReasoningTextDelta(PartEvent, tag="response.reasoning_text.delta", gc=False):
    """A piece of reasoning."""

    delta: str


class ReasoningTextDone(PartEvent, tag="response.reasoning_text.done"):
    """The whole text of a reasoning part."""

    text: str


class FunctionCallArgumentsDelta(ItemEvent, tag="response.function_call_arguments.delta", gc=False):
    """A piece of a call's arguments."""

    delta: str


class FunctionCallArgumentsDone(ItemEvent, tag="response.function_call_arguments.done"):
    """A call's whole arguments."""

    name: str
    arguments: str


class SummaryPartAdded(SummaryEvent, tag="response.reasoning_summary_part.added"):
    """A part of a summary begins, empty."""

    part: shapes.SummaryText


class SummaryPartDone(SummaryEvent, tag="response.reasoning_summary_part.done"):
    """A part of a summary ends, whole."""

    part: shapes.SummaryText


class SummaryTextDelta(SummaryEvent, tag="response.reasoning_summary_text.delta", gc=False):
    """A piece of a summary."""

    delta: str


class SummaryTextDone(SummaryEvent, tag="response.reasoning_summary_text.done"):
    """The whole text of a summary's part."""

    text: str


class CustomToolCallInputDelta(ItemEvent, tag="response.custom_tool_call_input.delta", gc=False):
    """A piece of a custom tool's input."""

    delta: str


class CustomToolCallInputDone(ItemEvent, tag="response.custom_tool_call_input.done"):
    """A custom tool's whole input."""

    input: str


class CommandEvent(ItemEvent):
    """An event of a command of a shell's call."""

    command_index: int


class ShellCallCommandAdded(CommandEvent, tag="response.shell_call_command.added"):
    """A command begins, empty."""

    command: str = ""


class ShellCallCommandDelta(CommandEvent, tag="response.shell_call_command.delta"):
    """A piece of a command."""

    delta: str


class ShellCallCommandDone(CommandEvent, tag="response.shell_call_command.done"):
    """A whole command."""

    command: str


class CodeInterpreterCallInProgress(ItemEvent, tag="response.code_interpreter_call.in_progress"):
    """The model begins to write code."""


class CodeInterpreterCallCodeDelta(ItemEvent, tag="response.code_interpreter_call_code.delta", gc=False):
    """A piece of the code."""

    delta: str


class CodeInterpreterCallCodeDone(ItemEvent, tag="response.code_interpreter_call_code.done"):
    """The whole code."""

    code: str


class CodeInterpreterCallInterpreting(ItemEvent, tag="response.code_interpreter_call.interpreting"):
    """The code is whole, and runs."""


class CodeInterpreterCallCompleted(ItemEvent, tag="response.code_interpreter_call.completed"):
    """The code has run."""


class WebSearchCallInProgress(ItemEvent, tag="response.web_search_call.in_progress"):
    """The model begins to write a call of the browser."""


class WebSearchCallSearching(ItemEvent, tag="response.web_search_call.searching"):
    """The browser begins the action."""


class WebSearchCallCompleted(ItemEvent, tag="response.web_search_call.completed"):
    """The browser has answered."""


class FileSearchCallInProgress(ItemEvent, tag="response.file_search_call.in_progress"):
    """The model begins to write a search of files."""


class FileSearchCallSearching(ItemEvent, tag="response.file_search_call.searching"):
    """The search of files begins."""


class FileSearchCallCompleted(ItemEvent, tag="response.file_search_call.completed"):
    """The search has answered."""


class McpCallInProgress(ItemEvent, tag="response.mcp_call.in_progress"):
    """The model begins to call a tool."""


class McpCallArgumentsDelta(ItemEvent, tag="response.mcp_call_arguments.delta", gc=False):
    """A piece of the arguments."""

    delta: str


class McpCallArgumentsDone(ItemEvent, tag="response.mcp_call_arguments.done"):
    """The whole arguments."""

    arguments: str


class McpCallCompleted(ItemEvent, tag="response.mcp_call.completed"):
    """The tool has answered."""


class McpCallFailed(ItemEvent, tag="response.mcp_call.failed"):
    """The call could not run, or failed."""


class McpListToolsInProgress(ItemEvent, tag="response.mcp_list_tools.in_progress"):
    """A server is asked for its tools."""


class McpListToolsCompleted(ItemEvent, tag="response.mcp_list_tools.completed"):
    """The server has listed its tools."""


class Keepalive(msgspec.Struct, tag_field="type", tag="keepalive"):
    """Nothing has happened for a while. The edge makes it for one client, with the number of the event that it sent
    last: it takes no number, and isn't kept.
    """

    sequence_number: int


Delta = (
    OutputTextDelta
    | ReasoningTextDelta
    | FunctionCallArgumentsDelta
    | SummaryTextDelta
    | CustomToolCallInputDelta
    | CodeInterpreterCallCodeDelta
    | McpCallArgumentsDelta
)

KINDS = tuple(
    kind
    for kind in list(vars().values())
    if isinstance(kind, type) and issubclass(kind, Event) and not kind.__subclasses__()
)
"""Every type of event."""
