"""The body of a create request: its shape, its defaults, and what this release doesn't serve yet.

A parameter is one of four: served; harmless (accepted, and echoed where the Response has a place for it); known but not
served yet, which is fine while null or at its default and otherwise a 400 that names it; or unknown, a 400. Nothing
that would change the answer is ignored in silence.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from service.protocol.decoding import decode, decoder_of, shown_raw
from service.protocol.errors import InvalidRequest, invalid_value, missing, unsupported

MAX_INSTRUCTIONS_CHARS = 10_485_760
MAX_METADATA_PAIRS = 16
MAX_METADATA_BYTES = 131_072
"""Twice what 16 pairs take when each character is escaped; a longer value is never decoded."""

MIN_OUTPUT_TOKENS = 16
MAX_INT = 2**31 - 1
"""JSON knows no largest integer; programs that read an echo do."""


_LATER = "A later release serves it; leave it out."
_ABSENT = msgspec.Raw(b"null")

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
HARMONY_EFFORT: dict[str, str] = {
    "none": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "high",
    "max": "high",
}
"""gpt-oss knows three efforts; the others are clamped to the nearest."""


TIERS: dict[str, str] = {
    "auto": "default",
    "default": "default",
    "flex": "flex",
    "priority": "priority",
    "fast": "priority",
}
"""What a service tier is echoed as. It says which background responses start first; flex ones wait for all others."""


class ReasoningParam(msgspec.Struct, forbid_unknown_fields=True):
    """How hard to think."""

    effort: Effort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None


class TextParam(msgspec.Struct, forbid_unknown_fields=True):
    """The form of the answer."""

    format: msgspec.Raw = _ABSENT
    verbosity: Literal["low", "medium", "high"] | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """How to stream."""

    include_obfuscation: bool | None = None


class CreateBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of `POST /v1/responses` as sent: anything may be absent or null."""

    model: str | None = None
    input: msgspec.Raw = _ABSENT
    instructions: Annotated[str, Meta(max_length=MAX_INSTRUCTIONS_CHARS)] | None = None
    previous_response_id: str | None = None
    tools: msgspec.Raw = _ABSENT
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Meta(ge=MIN_OUTPUT_TOKENS, le=MAX_INT)] | None = None
    max_tool_calls: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    reasoning: ReasoningParam | None = None
    text: TextParam | None = None
    metadata: msgspec.Raw = _ABSENT
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    prompt_cache_key: Annotated[str, Meta(max_length=1024)] | None = None
    # harmless here, of meaning to OpenAI alone; never decoded
    user: msgspec.Raw = _ABSENT
    client_metadata: msgspec.Raw = _ABSENT
    prompt_cache_retention: msgspec.Raw = _ABSENT
    prompt_cache_options: msgspec.Raw = _ABSENT
    moderation: msgspec.Raw = _ABSENT
    access_programs: msgspec.Raw = _ABSENT
    background: bool | None = None
    service_tier: str | None = None
    # not served yet: see LATER
    conversation: msgspec.Raw = _ABSENT
    context_management: msgspec.Raw = _ABSENT
    include: msgspec.Raw = _ABSENT
    prompt: msgspec.Raw = _ABSENT
    tool_choice: msgspec.Raw = _ABSENT
    truncation: msgspec.Raw = _ABSENT
    top_logprobs: msgspec.Raw = _ABSENT
    presence_penalty: msgspec.Raw = _ABSENT
    frequency_penalty: msgspec.Raw = _ABSENT
    image: msgspec.Raw = _ABSENT
    enable_response_messages: msgspec.Raw = _ABSENT
    previous_input_messages: msgspec.Raw = _ABSENT
    cache_salt: msgspec.Raw = _ABSENT
    priority: msgspec.Raw = _ABSENT
    request_id: msgspec.Raw = _ABSENT
    seed: msgspec.Raw = _ABSENT
    top_k: msgspec.Raw = _ABSENT
    min_p: msgspec.Raw = _ABSENT
    stop: msgspec.Raw = _ABSENT
    repetition_penalty: msgspec.Raw = _ABSENT


LATER: dict[str, tuple[Any, ...]] = {
    "conversation": (),
    "context_management": ([],),
    "include": ([],),
    "prompt": (),
    "tool_choice": ("auto",),
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "image": (),
    "enable_response_messages": (False,),
    "previous_input_messages": ([],),
    "cache_salt": (),
    "priority": (0,),
    "request_id": (),
    "seed": (),
    "top_k": (),
    "min_p": (),
    "stop": ([],),
    "repetition_penalty": (),
}
"""Parameters that a later release serves, and the values besides null that ask for nothing."""

LONGEST_HARMLESS_BYTES = 64
"""A longer value asks for something; so no long one is ever decoded."""

_BODY = decoder_of(CreateBody)
_ANY = decoder_of(Any)
_METADATA = decoder_of(dict[str, str] | None)


class CreateRequest(msgspec.Struct, frozen=True):
    """A create request that has been checked, its defaults filled in; those of sampling are the model's.

    `input` and `tools` are still JSON; they are read in steps, by input.py and tools.py.
    """

    model: str
    input: msgspec.Raw
    instructions: str | None
    previous_response_id: str | None
    tools: msgspec.Raw
    parallel_tool_calls: bool
    max_output_tokens: int | None
    max_tool_calls: int | None
    temperature: float | None
    top_p: float | None
    effort: Effort
    metadata: dict[str, str]
    store: bool
    background: bool
    tier: str
    stream: bool
    obfuscate: bool
    safety_identifier: str | None
    prompt_cache_key: str | None


def read_create(body: bytes, *, store: bool, unstored_background: bool = False) -> CreateRequest:
    """Check a create body. `store` is whether this service stores, `unstored_background` whether a background response
    needn't be stored. Raises ApiError; decodes no more than it must.
    """
    sent = decode(body, _BODY)
    _refuse_what_comes_later(sent)
    if not sent.model:
        raise missing("model", "Ask GET /v1/models what is served here.")
    if sent.input == _ABSENT and sent.previous_response_id is None:
        raise missing("input", "Give 'input', or 'previous_response_id' to continue a response.")
    if sent.stream_options is not None and not sent.stream:
        raise invalid_value("stream_options", "given without stream", "It is only allowed with 'stream': true.")
    if not store and (sent.store or sent.previous_response_id):
        param = "store" if sent.store else "previous_response_id"
        raise unsupported(param, "given", "This service stores no responses; send the whole conversation as input.")
    stored = store if sent.store is None else sent.store
    if sent.background and not stored and not unstored_background:
        raise unsupported("background", "true with store: false", "A background response has to be stored.")
    if sent.service_tier is not None and sent.service_tier not in TIERS:
        raise invalid_value("service_tier", sent.service_tier, f"Give one of {', '.join(TIERS)}, or leave it out.")
    return CreateRequest(
        model=sent.model,
        input=sent.input,
        instructions=sent.instructions,
        previous_response_id=sent.previous_response_id,
        tools=sent.tools,
        parallel_tool_calls=sent.parallel_tool_calls is not False,
        max_output_tokens=sent.max_output_tokens,
        max_tool_calls=sent.max_tool_calls,
        temperature=sent.temperature,
        top_p=sent.top_p,
        effort=(sent.reasoning and sent.reasoning.effort) or "medium",
        metadata=_metadata(sent.metadata),
        store=stored,
        background=bool(sent.background),
        tier=TIERS[sent.service_tier or "auto"],
        stream=bool(sent.stream),
        obfuscate=sent.stream_options is None or sent.stream_options.include_obfuscation is not False,
        safety_identifier=sent.safety_identifier,
        prompt_cache_key=sent.prompt_cache_key,
    )


def _refuse_what_comes_later(sent: CreateBody) -> None:
    for name, harmless in LATER.items():
        _refuse_unless_harmless(name, getattr(sent, name), harmless)
    if reasoning := sent.reasoning:
        if reasoning.summary or reasoning.generate_summary:
            raise unsupported("reasoning.summary", reasoning.summary or reasoning.generate_summary, _LATER)
        if reasoning.context not in (None, "auto"):
            raise unsupported("reasoning.context", reasoning.context, _LATER)
        if reasoning.mode not in (None, "standard"):
            raise unsupported("reasoning.mode", reasoning.mode, _LATER)
    if text := sent.text:
        _refuse_unless_harmless("text.format", text.format, ({"type": "text"},))
        if text.verbosity not in (None, "medium"):
            raise unsupported("text.verbosity", text.verbosity, _LATER)


def _refuse_unless_harmless(name: str, raw: msgspec.Raw, harmless: tuple[Any, ...]) -> None:
    """Raise InvalidRequest for a value that asks for something."""
    if raw == _ABSENT:
        return
    value = decode(raw, _ANY, name) if len(memoryview(raw)) <= LONGEST_HARMLESS_BYTES else ...
    if not any(value == each and type(value) is type(each) for each in harmless):
        raise unsupported(name, shown_raw(raw), _LATER)


def _metadata(raw: msgspec.Raw) -> dict[str, str]:
    """At most 16 pairs, keys to 64 and values to 512 characters."""
    if len(memoryview(raw)) > MAX_METADATA_BYTES:
        raise invalid_value("metadata", shown_raw(raw), f"It has at most {MAX_METADATA_PAIRS} short pairs.")
    sent: dict[str, str] = decode(raw, _METADATA, "metadata") or {}
    if len(sent) > MAX_METADATA_PAIRS:
        raise InvalidRequest(
            f"Too many pairs in 'metadata': {len(sent)}, at most {MAX_METADATA_PAIRS} are allowed.",
            code="invalid_value",
            param="metadata",
        )
    for key, value in sent.items():
        if len(key) > 64:
            raise invalid_value("metadata", key, "A key has at most 64 characters.")
        if len(value) > 512:
            raise invalid_value(f"metadata.{key}", value, "A value has at most 512 characters.")
    return sent
