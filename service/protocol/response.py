"""The Response and its output items as they go over the wire; every key is present, null rather than absent.

Source of the keys: the Open Responses specification's ResponseResource, whose compliance suite refuses a missing one,
and openai 3.51's `types/responses/response.py`. Never put a secret or an internal id into one of these.
"""

from enum import StrEnum
from typing import Any, Literal

import msgspec

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Phase = Literal["commentary", "final_answer"]


class ResponseStatus(StrEnum):
    """Where a response stands. Terminal ones are stored; see `store.turn.Status`."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"


class OutputText(msgspec.Struct, tag="output_text", tag_field="type"):
    """A text part of a message."""

    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []


class ReasoningText(msgspec.Struct, tag="reasoning_text", tag_field="type"):
    """A part of raw reasoning."""

    text: str


class Message(msgspec.Struct, tag="message", tag_field="type"):
    """What the model says: a preamble (`phase` commentary) or an answer (final_answer)."""

    id: str
    status: ItemStatus
    phase: Phase
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"


class Reasoning(msgspec.Struct, tag="reasoning", tag_field="type"):
    """What the model thinks, raw."""

    id: str
    status: ItemStatus
    content: list[ReasoningText]
    summary: list[Any] = []


class FunctionCall(msgspec.Struct, tag="function_call", tag_field="type"):
    """A call of one of the caller's functions; `arguments` are as sampled, valid JSON or not."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


Item = Message | Reasoning | FunctionCall


class InputTokensDetails(msgspec.Struct):
    """How much of the prompt the engine's prefix cache held, and how much it newly kept."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct):
    """How many of the sampled tokens were reasoning."""

    reasoning_tokens: int = 0


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
    """Why a response is incomplete: `max_output_tokens`, or `no_output` when the model said nothing at all."""

    reason: Literal["max_output_tokens", "no_output"]


class Response(msgspec.Struct, tag="response", tag_field="object"):
    """The Response object. The configuration is an echo of the request with its defaults filled in."""

    id: str
    created_at: int
    status: ResponseStatus
    model: str
    instructions: str | None
    previous_response_id: str | None
    tools: list[Any]
    tool_choice: str
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


_decoder = msgspec.json.Decoder(Response)


def decode_response(json: bytes | msgspec.Raw) -> Response:
    """The response that `json` was encoded from; it is ours, so a fault is msgspec.DecodeError and nobody's request."""
    return _decoder.decode(json)
