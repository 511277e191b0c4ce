"""The Response and its output items as they go over the wire; every key is present, null rather than absent.

Source of the keys: the Open Responses specification's ResponseResource, whose compliance suite refuses a missing one,
and openai 3.54's `types/responses/response.py`. Never put a secret or an internal id into one of these.
"""

from enum import StrEnum
from typing import Any, Literal, cast

import msgspec

from service.decoding import Json

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


class ResponseStatus(StrEnum):
    """The status of a response. Terminal ones are stored; see `store.turn.Status`."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"


class TopLogprob(msgspec.Struct, frozen=True):
    """An alternative token; its log probability is natural, and -9999 means none."""

    token: str
    logprob: float
    bytes: list[int]


class Logprob(msgspec.Struct, frozen=True):
    """A sampled token of an answer; its `bytes` may be a part of a character."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob] = []


class OutputText(msgspec.Struct, tag="output_text", tag_field="type"):
    """A text part of a message. Each of its `logprobs` is the JSON of a Logprob: there may be thousands, with twenty
    alternatives each, and they are written again and again.
    """

    text: str
    annotations: list[Any] = []
    logprobs: list[msgspec.Raw] = []


class ReasoningText(msgspec.Struct, tag="reasoning_text", tag_field="type"):
    """A part of raw reasoning."""

    text: str


class SummaryText(msgspec.Struct, tag="summary_text", tag_field="type"):
    """A part of a reasoning's summary."""

    text: str


class Message(msgspec.Struct, tag="message", tag_field="type"):
    """The words of the model: a preamble (`phase` commentary) or an answer (final_answer)."""

    id: str
    status: ItemStatus
    phase: Phase
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class Reasoning(msgspec.Struct, tag="reasoning", tag_field="type"):
    """The model's raw reasoning."""

    id: str
    status: ItemStatus
    content: list[ReasoningText]
    summary: list[SummaryText] = []
    encrypted_content: str | msgspec.UnsetType = msgspec.UNSET
    """Present only where the request asked for it; Open Responses refuses null."""


class FunctionCall(msgspec.Struct, tag="function_call", tag_field="type"):
    """A call of one of the caller's functions; `arguments` are as sampled, valid JSON or not."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus
    namespace: str | msgspec.UnsetType = msgspec.UNSET
    encrypted_function_args: list[str] | msgspec.UnsetType = msgspec.UNSET
    """The names of arguments that are encrypted: none, and there where the function's declaration wishes for some."""


class CustomToolCall(msgspec.Struct, tag="custom_tool_call", tag_field="type"):
    """A call of one of the caller's custom tools, whose input is any text."""

    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus
    namespace: str | msgspec.UnsetType = msgspec.UNSET


class ToolSearchCall(msgspec.Struct, tag="tool_search_call", tag_field="type"):
    """A search for tools that the client executes; `arguments` are an object, empty until the call is complete."""

    id: str
    call_id: str
    arguments: dict[str, Any]
    status: ItemStatus
    execution: Literal["client"] = "client"


class ShellCall(msgspec.Struct, tag="shell_call", tag_field="type"):
    """Commands for the client's shell; empty until the call is complete."""

    id: str
    call_id: str
    action: dict[str, Any]
    status: ItemStatus


class LocalShellCall(msgspec.Struct, tag="local_shell_call", tag_field="type"):
    """A command for the client's machine; empty until the call is complete."""

    id: str
    call_id: str
    action: dict[str, Any]
    status: ItemStatus


class ApplyPatchCall(msgspec.Struct, tag="apply_patch_call", tag_field="type"):
    """A change of one of the client's files; it is shown once the call is complete."""

    id: str
    call_id: str
    operation: dict[str, Any]
    status: ItemStatus


class CodeInterpreterCall(msgspec.Struct, tag="code_interpreter_call", tag_field="type"):
    """A call of Python."""

    id: str
    code: str
    status: Literal["in_progress", "interpreting", "completed", "incomplete", "failed"]
    container_id: str = ""
    outputs: list[Any] | None = None


class WebSearchCall(msgspec.Struct, tag="web_search_call", tag_field="type"):
    """A browser call of the model; there is no `action` until it is known."""

    id: str
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    action: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class FileSearchCall(msgspec.Struct, tag="file_search_call", tag_field="type"):
    """A search of files by the model; `queries` are empty until they are known. `results` are for requests that
    include them.
    """

    id: str
    queries: list[str]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    results: list[dict[str, Any]] | None = None


class McpCall(msgspec.Struct, tag="mcp_call", tag_field="type"):
    """A call of a tool that is neither the caller's nor built in."""

    id: str
    server_label: str
    name: str
    arguments: str
    status: Literal["in_progress", "calling", "completed", "incomplete", "failed"]
    output: str | None = None
    error: dict[str, Any] | None = None
    approval_request_id: str | None = None


class McpApprovalRequest(msgspec.Struct, tag="mcp_approval_request", tag_field="type"):
    """A call that needs the caller's approval. It has no status."""

    id: str
    server_label: str
    name: str
    arguments: str


class McpListTools(msgspec.Struct, tag="mcp_list_tools", tag_field="type"):
    """A server's tools for this response. It has no status, and no error: the AI SDK reads no null there, and a
    server that lists none ends the request.
    """

    id: str
    server_label: str
    tools: list[dict[str, Any]]


class Compaction(msgspec.Struct, tag="compaction", tag_field="type"):
    """A compacted conversation, sealed for the tenant."""

    id: str
    encrypted_content: str


Item = (
    Message
    | Reasoning
    | FunctionCall
    | CustomToolCall
    | ToolSearchCall
    | ShellCall
    | LocalShellCall
    | ApplyPatchCall
    | CodeInterpreterCall
    | WebSearchCall
    | FileSearchCall
    | McpCall
    | McpApprovalRequest
    | McpListTools
    | Compaction
)


ActionCall = ToolSearchCall | ShellCall | LocalShellCall | ApplyPatchCall
"""Calls of the client's tools that have items of their own."""

OwnCall = FunctionCall | CustomToolCall | ActionCall
"""Calls of tools that the client runs: it owes an output for each."""


class InputTokensDetails(msgspec.Struct):
    """The tokens of the prompt in the engine's prefix cache, and those newly cached.

    A turn is a stretch sampled without a break: a response has several where a tool's answer came in between. vLLM's
    figures of each are there only where `enable_response_messages` asks for vLLM's members: OpenAI's clients read
    numbers alone in these objects, and @openai/agents throws at a list.
    """

    cached_tokens: int = 0
    cache_write_tokens: int = 0
    input_tokens_per_turn: list[int] | msgspec.UnsetType = msgspec.UNSET
    cached_tokens_per_turn: list[int] | msgspec.UnsetType = msgspec.UNSET


class OutputTokensDetails(msgspec.Struct):
    """How many sampled tokens were reasoning, and how many tokens tools returned, which don't count as sampled."""

    reasoning_tokens: int = 0
    tool_output_tokens: int = 0
    output_tokens_per_turn: list[int] | msgspec.UnsetType = msgspec.UNSET
    tool_output_tokens_per_turn: list[int] | msgspec.UnsetType = msgspec.UNSET


class Usage(msgspec.Struct):
    """Tokens of the whole prompt and of everything sampled, the marks of the format included."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(msgspec.Struct):
    """Why a response failed: a code for programs and a message for people."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    """Why a response is incomplete: `max_output_tokens`, `steered` after an accepted steer, or `no_output` if the
    model wrote nothing.
    """

    reason: Literal["max_output_tokens", "steered", "no_output"]


SteerCode = Literal[
    "response_not_found",
    "invalid_input",
    "steering_not_supported",
    "too_many_pending_steers",
    "response_already_completed",
    "response_not_active",
    "successor_creation_failed",
]
"""The reasons for which a steer is given back."""


class SteerShown(msgspec.Struct, omit_defaults=True):
    """A steer: its response; its id, once it is accepted; its input, if it is returned."""

    previous_response_id: str
    id: str | msgspec.UnsetType = msgspec.UNSET
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class SteerError(msgspec.Struct):
    """Why a steer is returned: a code for programs and a message for people."""

    code: SteerCode
    message: str
    type: str = "invalid_request_error"


class GivenBack(msgspec.Struct):
    """An accepted steer without effect."""

    steer: SteerShown
    error: SteerError


class Extensions(msgspec.Struct, omit_defaults=True):
    """harmonium's extensions."""

    succeeded_by: str | msgspec.UnsetType = msgspec.UNSET
    """The id of the response that goes on from a background response that was steered."""
    failed_steers: list[GivenBack] | msgspec.UnsetType = msgspec.UNSET
    """The steers that were given back."""
    recognised: bool | msgspec.UnsetType = msgspec.UNSET
    """True where its request named no conversation, and was recognised as the next turn of one by its history."""
    stop: str | msgspec.UnsetType = msgspec.UNSET
    """The text of `stop` at which it ended."""

    @classmethod
    def extend(cls, response: "Response", **facts: Any) -> "Response":
        """The response with facts added to those that it has."""
        known = response.harmonium or cls()
        return msgspec.structs.replace(response, harmonium=msgspec.structs.replace(known, **facts))


class Response(msgspec.Struct, tag="response", tag_field="object"):
    """The Response object. The configuration is an echo of the request with its defaults filled in."""

    id: str
    created_at: int
    status: ResponseStatus
    model: str
    instructions: str | None
    previous_response_id: str | None
    tools: list[Any]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    max_output_tokens: int | None
    max_tool_calls: int | None
    temperature: float
    top_p: float
    reasoning: dict[str, str | None]
    text: dict[str, Any]
    metadata: dict[str, str]
    store: bool
    safety_identifier: str | None
    prompt_cache_key: str | None
    output: list[Item] = []
    usage: Usage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    completed_at: int | None = None
    background: bool = False
    service_tier: str = "default"
    truncation: str = "disabled"
    top_logprobs: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    prompt: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    user: str | msgspec.UnsetType = msgspec.UNSET
    conversation: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    """The `id` of the conversation that it is a part of, where there is one."""
    input_messages: list[Any] | msgspec.UnsetType = msgspec.UNSET
    """The Harmony messages of the prompt and, below, of the output, where `enable_response_messages` asked for them."""
    output_messages: list[Any] | msgspec.UnsetType = msgspec.UNSET
    durability: Literal["unconfirmed"] | msgspec.UnsetType = msgspec.UNSET
    """Set where the store has the response, but didn't confirm STORE_REPLICAS and STORE_FSYNC in time."""
    harmonium: Extensions | msgspec.UnsetType = msgspec.UNSET


def decode_response(json: bytes | msgspec.Raw) -> Response:
    """The response that `json` was encoded from. It is ours, so a fault is msgspec.DecodeError, and no request's."""
    return msgspec.json.decode(json, type=Response)


def with_bytes(logprob: Json | msgspec.Raw) -> Json:
    """A token's log probability with its bytes, which our events leave out. Those of a piece of a character aren't
    known here and stay empty; the item at the end has them.
    """
    if isinstance(logprob, msgspec.Raw):
        logprob = cast(Json, msgspec.json.decode(logprob))
    alternatives = [one | {"bytes": _bytes_of(one["token"])} for one in logprob.get("top_logprobs", ())]
    return logprob | {"bytes": _bytes_of(logprob["token"]), "top_logprobs": alternatives}


def _bytes_of(token: str) -> list[int]:
    return [] if "\ufffd" in token else list(token.encode())
