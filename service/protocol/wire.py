"""A create request, checked: its defaults, what goes together, and what this release doesn't serve yet.

A parameter is one of four: served; harmless (accepted, and echoed where the Response has a place for it); known but not
served yet, which is fine while null or at its default and otherwise a 400 that names it; or unknown, a 400. Nothing
that would change the answer is ignored in silence.
"""

from typing import Literal

import msgspec

from service.protocol.create_body import (
    ABSENT,
    LATER,
    MAX_STOP_CHARS,
    CreateBody,
    Effort,
    Managing,
    PromptParam,
    TextParam,
)
from service.protocol.decoding import decode, decoder_of, shown_raw
from service.protocol.errors import InvalidRequest, invalid_value, missing, unsupported

MAX_METADATA_PAIRS = 16
MAX_METADATA_BYTES = 131_072
"""Twice what 16 pairs take when each character is escaped; a longer value is never decoded."""

_LATER = "A later release serves it; leave it out."

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

_BODY = decoder_of(CreateBody)
_METADATA = decoder_of(dict[str, str] | None)


class CreateRequest(msgspec.Struct, frozen=True):
    """A create request that has been checked, its defaults filled in; those of sampling are the model's.

    What is still JSON is read in steps, each part by whoever knows it: `input` by input.py, `tools` by tools.py,
    `tool_choice` by tool_choice.py, `format` by formats.py, `previous_input_messages` by previous.py.
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
    tool_choice: msgspec.Raw
    summary: Literal["auto", "concise", "detailed"] | None
    thoughts: Literal["current_turn", "all_turns"]
    """Whose analysis the prompt shows: since the last final answer, or all there is."""
    format: msgspec.Raw
    verbosity: Literal["low", "medium", "high"]
    include: frozenset[str]
    truncation: Literal["auto", "disabled"]
    prompt: PromptParam | None
    sampling: "SamplingParams"
    stop: tuple[str, ...]
    top_logprobs: int
    cache_salt: str | None
    priority: int | None
    request_id: str | None
    response_messages: bool
    previous_input_messages: msgspec.Raw
    managing: Managing | None
    """Whether the conversation is compacted before it is answered, and from which length on."""

    @property
    def shows_logprobs(self) -> bool:
        """Whether the answer's log probabilities are shown."""
        return "message.output_text.logprobs" in self.include


class SamplingParams(msgspec.Struct, frozen=True):
    """Parameters of sampling besides temperature and top_p; None is the model's own."""

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    seed: int | None = None
    top_k: int | None = None
    min_p: float | None = None


def read_create(body: bytes, *, store: bool, unstored_background: bool = False) -> CreateRequest:
    """Check a create body. `store` is whether this service stores, `unstored_background` whether a background response
    needn't be stored. Raises ApiError; decodes no more than it must.
    """
    sent = decode(body, _BODY)
    _refuse_what_comes_later(sent)
    if not sent.model:
        raise missing("model", "Ask GET /v1/models what is served here.")
    text = sent.text or TextParam()
    stored = store if sent.store is None else sent.store
    _refuse_what_does_not_go_together(sent, store=store, keeps=stored or unstored_background)
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
        tool_choice=sent.tool_choice,
        summary=sent.reasoning and (sent.reasoning.summary or sent.reasoning.generate_summary),
        thoughts="all_turns" if sent.reasoning and sent.reasoning.context == "all_turns" else "current_turn",
        format=text.format,
        verbosity=text.verbosity or "medium",
        include=frozenset(sent.include or ()),
        truncation=sent.truncation or "disabled",
        prompt=sent.prompt,
        sampling=SamplingParams(
            presence_penalty=sent.presence_penalty or 0.0,
            frequency_penalty=sent.frequency_penalty or 0.0,
            repetition_penalty=sent.repetition_penalty,
            seed=sent.seed,
            top_k=None if sent.top_k is None else max(sent.top_k, 0),
            min_p=sent.min_p,
        ),
        stop=_stop(sent.stop),
        top_logprobs=sent.top_logprobs or 0,
        cache_salt=sent.cache_salt,
        priority=sent.priority,
        request_id=sent.request_id,
        response_messages=bool(sent.enable_response_messages),
        previous_input_messages=sent.previous_input_messages,
        managing=next(iter(sent.context_management or ()), None),
    )


def _stop(sent: str | list[str] | None) -> tuple[str, ...]:
    """The texts before which an answer ends."""
    stops = (sent,) if isinstance(sent, str) else tuple(sent or ())
    for stop in stops:
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise invalid_value("stop", stop, f"Each has 1 to {MAX_STOP_CHARS} characters.")
    return stops


def _refuse_what_comes_later(sent: CreateBody) -> None:
    for name in LATER:
        if getattr(sent, name) != ABSENT:
            raise unsupported(name, shown_raw(getattr(sent, name)), _LATER)
    if sent.reasoning and sent.reasoning.mode not in (None, "standard"):
        raise unsupported("reasoning.mode", sent.reasoning.mode, _LATER)


def _refuse_what_does_not_go_together(sent: CreateBody, *, store: bool, keeps: bool) -> None:
    """`store` is whether this service stores, `keeps` whether the response is there until its caller comes for it."""
    if sent.input == ABSENT and sent.previous_response_id is None and sent.prompt is None:
        raise missing("input", "Give 'input', or 'previous_response_id' to continue a response.")
    if sent.stream_options is not None and not sent.stream:
        raise invalid_value("stream_options", "given without stream", "It is only allowed with 'stream': true.")
    if not store and (sent.store or sent.previous_response_id):
        param = "store" if sent.store else "previous_response_id"
        raise unsupported(param, "given", "This service stores no responses; send the whole conversation as input.")
    if sent.previous_response_id is not None and bytes(sent.previous_input_messages) not in (b"null", b"[]"):
        raise invalid_value(
            "previous_input_messages", "given with previous_response_id", "Continue from the one or from the other."
        )
    if sent.background and not keeps:
        raise unsupported("background", "true with store: false", "A background response has to be stored.")
    if sent.service_tier is not None and sent.service_tier not in TIERS:
        raise invalid_value("service_tier", sent.service_tier, f"Give one of {', '.join(TIERS)}, or leave it out.")


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
