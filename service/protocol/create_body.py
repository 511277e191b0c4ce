"""The body of a create request as it is sent: the shape and the limits of each parameter.

What they come to together is checked in wire.py. What is long, or needs other parts of the service to be understood,
stays JSON here.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

MAX_INSTRUCTIONS_CHARS = 10_485_760
MIN_OUTPUT_TOKENS = 16
MAX_INT = 2**31 - 1
"""JSON knows no largest integer; programs that read an echo do."""

MAX_INCLUDES = 64
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_TOP_LOGPROBS = 20

ABSENT = msgspec.Raw(b"null")

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ReasoningParam(msgspec.Struct, forbid_unknown_fields=True):
    """How hard to think."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None


Include = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
"""What a request may want to see besides. The last two are ours to give; the others are of tools that gave none."""


class PromptParam(msgspec.Struct, forbid_unknown_fields=True):
    """A stored prompt template, and what stands for its variables."""

    id: Annotated[str, Meta(min_length=1, max_length=128)]
    version: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    variables: dict[str, msgspec.Raw] | None = None


class TextParam(msgspec.Struct, forbid_unknown_fields=True):
    """The form of the answer."""

    format: msgspec.Raw = ABSENT
    verbosity: Literal["low", "medium", "high"] | None = None


class Managing(msgspec.Struct, forbid_unknown_fields=True):
    """What is done about a long conversation: it is compacted beyond so many tokens; null is our default."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How to stream."""

    include_obfuscation: bool | None = None


class CreateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/responses` as sent: anything may be absent or null."""

    model: str | None = None
    input: msgspec.Raw = ABSENT
    instructions: Annotated[str, Meta(max_length=MAX_INSTRUCTIONS_CHARS)] | None = None
    previous_response_id: str | None = None
    tools: msgspec.Raw = ABSENT
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=MIN_OUTPUT_TOKENS, le=MAX_INT)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None
    metadata: msgspec.Raw = ABSENT
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=1024)] | None = None
    # harmless here, of meaning to OpenAI alone; never decoded
    user: msgspec.Raw = ABSENT
    client_metadata: msgspec.Raw = ABSENT
    prompt_cache_retention: msgspec.Raw = ABSENT
    prompt_cache_options: msgspec.Raw = ABSENT
    moderation: msgspec.Raw = ABSENT
    access_programs: msgspec.Raw = ABSENT
    background: bool | None = None
    service_tier: str | None = None
    include: Annotated[list[Include], Meta(max_length=MAX_INCLUDES)] | None = None
    prompt: PromptParam | None = None
    tool_choice: msgspec.Raw = ABSENT
    truncation: Literal["auto", "disabled"] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=2)] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=MAX_INT)] | None = None
    request_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,128}\Z")] | None = None
    enable_response_messages: bool | None = None
    previous_input_messages: msgspec.Raw = ABSENT
    context_management: Annotated[list[Managing], Meta(max_length=1)] | None = None
    # not served yet: see LATER
    conversation: msgspec.Raw = ABSENT
    image: msgspec.Raw = ABSENT


LATER = ("conversation", "image")
"""Parameters that a later release serves; none of them is ever decoded."""
