"""A create request: its body as it is sent, and the request that was checked.

The body gives each parameter its shape and its limits. Long parameters, and those that other parts of the service
understand, stay JSON here. A parameter is one of four: served; harmless (accepted, and echoed where the Response has a
place for it); known but not served yet, which is fine while null or at its default and otherwise a 400 that names it;
or unknown, a 400. Nothing that would change the answer is ignored in silence. A request for a count of tokens is a
create request in which the model may be left out.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from service.api.content import without_billing
from service.decoding import ABSENT, decode, shown_raw
from service.errors import InvalidRequest, brief, invalid_value, missing, not_allowed, not_served

MAX_INSTRUCTIONS_CHARS = 10_485_760
MIN_OUTPUT_TOKENS = 16
MAX_INT = 2**31 - 1
"""The largest integer. JSON knows none, but programs that read an echo do."""

MAX_USER_CHARS = 1024
MAX_SESSION_CHARS = 256
MAX_CONTINUATION_CHARS = 256
MAX_INCLUDES = 64
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_TOP_LOGPROBS = 20

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ReasoningParam(msgspec.Struct, forbid_unknown_fields=True):
    """The effort of reasoning."""

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
"""The values of `include`. The last two are ours to give; the others belong to tools that gave nothing."""


class PromptParam(msgspec.Struct, forbid_unknown_fields=True):
    """A stored prompt template, with values of its variables."""

    id: Annotated[str, Meta(min_length=1, max_length=128)]
    version: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    variables: dict[str, msgspec.Raw] | None = None


class TextParam(msgspec.Struct, forbid_unknown_fields=True):
    """The form of the answer."""

    format: msgspec.Raw = ABSENT
    verbosity: Literal["low", "medium", "high"] | None = None


class Managing(msgspec.Struct, forbid_unknown_fields=True):
    """The number of tokens beyond which a conversation is compacted; null is our default."""

    type: Literal["compaction"]
    compact_threshold: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None


class ConversationParam(msgspec.Struct, forbid_unknown_fields=True):
    """The conversation of a response."""

    id: str


class CachingParam(msgspec.Struct, forbid_unknown_fields=True):
    """OpenAI's caching of prompts; an engine here caches all prompts while there is room."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    comparison_response_id: Annotated[str, Meta(max_length=MAX_USER_CHARS)] | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """Options of the stream. The last event has the usage, whether it is asked for or not."""

    include_obfuscation: bool | None = None
    include_usage: bool | None = None


Window = Literal["soonest", "2h", "8h"]
"""The time within which a background response is to be complete."""


class BackgroundParam(msgspec.Struct, forbid_unknown_fields=True):
    """The completion window of a background response, and its place beside others."""

    completion_window: Window | None = None
    continuation_id: Annotated[str, Meta(max_length=MAX_CONTINUATION_CHARS)] | None = None


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
    user: Annotated[str, Meta(max_length=MAX_USER_CHARS)] | None = None
    # harmless here, of meaning to OpenAI alone; the first is never decoded
    client_metadata: msgspec.Raw = ABSENT
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: CachingParam | None = None
    background: bool | None = None
    background_options: BackgroundParam | None = None
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
    min_tokens: Annotated[int, Meta(ge=0, le=MAX_INT)] | None = None
    ignore_eos: bool | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=MAX_INT)] | None = None
    request_id: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.:-]{1,128}\Z")] | None = None
    enable_response_messages: bool | None = None
    previous_input_messages: msgspec.Raw = ABSENT
    context_management: Annotated[list[Managing], Meta(max_length=1)] | None = None
    conversation: str | ConversationParam | None = None
    session_id: Annotated[str, Meta(max_length=MAX_SESSION_CHARS)] | None = None
    # not served: see UNSERVED
    image: msgspec.Raw = ABSENT
    moderation: msgspec.Raw = ABSENT
    access_programs: msgspec.Raw = ABSENT
    personality: msgspec.Raw = ABSENT
    chat_template_kwargs: msgspec.Raw = ABSENT
    structured_outputs: msgspec.Raw = ABSENT
    logit_bias: msgspec.Raw = ABSENT
    include_reasoning: msgspec.Raw = ABSENT
    skip_special_tokens: msgspec.Raw = ABSENT
    spaces_between_special_tokens: msgspec.Raw = ABSENT
    include_stop_str_in_output: msgspec.Raw = ABSENT
    mm_processor_kwargs: msgspec.Raw = ABSENT
    media_io_kwargs: msgspec.Raw = ABSENT
    kv_transfer_params: msgspec.Raw = ABSENT
    watermarking: msgspec.Raw = ABSENT


class ChatBody(CreateBody, forbid_unknown_fields=True):
    """The body that a Chat Completions request becomes: its answer may be as short as it likes."""

    max_output_tokens: Annotated[int, Meta(ge=1, le=MAX_INT)] | None = None


class CreateFrame(CreateBody, forbid_unknown_fields=True):
    """The frame `response.create` of a WebSocket as sent: a body, flat, and the members that only a frame has."""

    type: Literal["response.create"] = "response.create"
    stream_id: str | None = None
    generate: bool | None = None


_LATER = "This release doesn't support it; leave it out."
_NOT_HERE = "Leave it out."

MAX_TEMPLATE_OPTIONS = 64
MAX_TEMPLATE_BYTES = 16_384
"""The most variables that a request may give to a chat template, and the most bytes of their JSON."""

TEMPLATES_OWN = frozenset(
    {
        *("chat_template", "tokenize", "messages", "conversation", "tools", "documents"),
        *("add_generation_prompt", "continue_final_message"),
    }
)
"""Names that 'chat_template_kwargs' may not have: they are arguments of the function that renders the template."""

TemplateOption = bool | int | float | str | None

UNSERVED: dict[str, tuple[bytes, str]] = {
    "image": (b"null", _LATER),
    "moderation": (b"null", "This service moderates nothing; leave it out."),
    "access_programs": (b"null", _NOT_HERE),
    "personality": (b"null", "gpt-oss has one style; describe another one in 'instructions'."),
    "structured_outputs": (b"{}", "Give a JSON schema as 'text.format', or a custom tool with a grammar."),
    "logit_bias": (b"{}", _NOT_HERE),
    "include_reasoning": (b"true", "Reasoning is a separate item, which a client can ignore."),
    "skip_special_tokens": (b"true", "'enable_response_messages' shows the messages as the model has them."),
    "spaces_between_special_tokens": (b"true", _NOT_HERE),
    "include_stop_str_in_output": (b"false", _NOT_HERE),
    "mm_processor_kwargs": (b"{}", _NOT_HERE),
    "media_io_kwargs": (b"{}", _NOT_HERE),
    "kv_transfer_params": (b"{}", _NOT_HERE),
    "watermarking": (b"null", _NOT_HERE),
}
"""Parameters of OpenAI's and of vLLM's that aren't served, each with the value at which it changes nothing, and with
advice. None of them is ever decoded.
"""


MAX_METADATA_PAIRS = 16
MAX_METADATA_BYTES = 131_072
"""Twice the bytes of 16 pairs whose characters are all escaped; a longer value is never decoded."""

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
    "scale": "default",
    "ultrafast": "default",
}
"""Service tiers and their echoes. A tier decides which of its tenant's background responses start first; flex waits
for all others of these."""


class CreateRequest(msgspec.Struct, frozen=True):
    """A create request that has been checked, its defaults filled in; those of sampling are the model's.

    The members that are still JSON are read in steps: `input` by read.py, `tools` by tools/read.py, `tool_choice` by
    tools/choice.py, `format` by tools/format.py, `previous_input_messages` by history.py.
    """

    model: str
    """The model's name as it was sent; "" is the one that is served."""
    input: msgspec.Raw
    instructions: str | None
    previous_response_id: str | None
    conversation: str | None
    """The id of the conversation that the response continues. A stored response is added to it."""
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
    """The analysis that the prompt shows: since the last final answer, or all there is."""
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
    """The compaction of the conversation before it is answered: whether, and from which length on."""
    generate: bool = True
    """Whether an answer is made; without one, a WebSocket's frame is only kept to be continued."""
    user: str | None = None
    session_id: str | None = None
    window: Window = "soonest"
    continuation_id: str | None = None
    """The client's name for background responses that belong together: the later ones start before others."""
    announced: bool = True
    """Whether a webhook reports its end, where there is a receiver: not that of a line of a batch."""
    template_options: dict[str, TemplateOption] = {}
    """The wished variables of the chat template, of a model that has one."""
    begins_at: int = 0
    """The place of the first item of `input` among those that the client sent: the conversation has those before it."""

    @property
    def outlasts(self) -> bool:
        """Whether it can go on without its client: who comes back finds what was stored, and follows a stream."""
        return self.store and self.stream

    @property
    def shows_logprobs(self) -> bool:
        """Whether the answer's log probabilities are shown."""
        return "message.output_text.logprobs" in self.include


_AS_SENT = (
    *("input", "previous_response_id", "previous_input_messages", "prompt", "tools", "tool_choice"),
    *("max_output_tokens", "max_tool_calls", "temperature", "top_p", "cache_salt", "priority", "request_id"),
    *("safety_identifier", "prompt_cache_key", "user", "session_id"),
)
"""The members of a body that a request has as they were sent."""


class SamplingParams(msgspec.Struct, frozen=True):
    """Parameters of sampling besides temperature and top_p; None is the model's own."""

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float | None = None
    seed: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    min_tokens: int = 0


def read_create(
    body: bytes,
    *,
    store: bool,
    unstored_background: bool = False,
    detached: bool = False,
    kind: type[CreateBody] = CreateBody,
) -> CreateRequest:
    """The checked request of a create body of a kind. `store`: this service stores. `unstored_background`: a background
    response needn't be stored. Raises ApiError; decodes no more than it must.
    """
    checked = _check(decode(body, kind), store=store, unstored_background=unstored_background)
    return msgspec.structs.replace(checked, background=checked.background or (detached and checked.outlasts))


def read_frame(frame: bytes, *, store: bool) -> CreateRequest:
    """As read_create, for a frame: it is streamed, runs in the foreground, and may continue an unstored response."""
    sent = decode(frame, CreateFrame)
    if sent.background:
        raise not_served("background", "true", "A WebSocket has no background responses; POST it.")
    if sent.stream is False:
        raise invalid_value("stream", "false", "A WebSocket always streams. Leave it out.")
    sent.stream = True
    checked = _check(sent, store=store, remembers=True)
    padded = sent.stream_options is not None and sent.stream_options.include_obfuscation is True
    if sent.generate is False:
        return msgspec.structs.replace(checked, obfuscate=padded, generate=False, managing=None)
    return msgspec.structs.replace(checked, obfuscate=padded)


def _check(
    sent: CreateBody,
    *,
    store: bool,
    unstored_background: bool = False,
    remembers: bool = False,
    counts: bool = False,
) -> CreateRequest:
    """The checked request of a sent body. `remembers`: an unstored response can be continued. `counts`: only tokens are
    counted.
    """
    _refuse_what_is_not_served(sent)
    if not sent.model and not counts and sent.prompt is None:
        raise missing("model", "GET /v1/models lists the served models.")
    text = sent.text or TextParam()
    stored = store if sent.store is None else sent.store
    warms = isinstance(sent, CreateFrame) and sent.generate is False
    options = sent.background_options or BackgroundParam()
    window = options.completion_window or "soonest"
    if window != "soonest":
        _refuse_beside_a_window(sent, window)
    _refuse_what_does_not_go_together(
        sent, store=store, keeps=stored or unstored_background, remembers=remembers, warms=warms
    )
    return CreateRequest(
        **{name: getattr(sent, name) for name in _AS_SENT},
        instructions=None if sent.instructions is None else without_billing(sent.instructions),
        model=sent.model or "",
        conversation=sent.conversation.id if isinstance(sent.conversation, ConversationParam) else sent.conversation,
        parallel_tool_calls=sent.parallel_tool_calls is not False,
        effort=(sent.reasoning and sent.reasoning.effort) or "medium",
        metadata=read_metadata(sent.metadata),
        store=stored,
        background=bool(sent.background),
        window=window,
        continuation_id=options.continuation_id or None,
        tier=TIERS[sent.service_tier or "auto"],
        stream=bool(sent.stream),
        obfuscate=sent.stream_options is None or sent.stream_options.include_obfuscation is not False,
        summary=sent.reasoning and (sent.reasoning.summary or sent.reasoning.generate_summary),
        thoughts="all_turns" if sent.reasoning and sent.reasoning.context == "all_turns" else "current_turn",
        template_options=_template_options(sent.chat_template_kwargs),
        format=text.format,
        verbosity=text.verbosity or "medium",
        include=frozenset(sent.include or ()),
        truncation=sent.truncation or "disabled",
        sampling=SamplingParams(
            presence_penalty=sent.presence_penalty or 0.0,
            frequency_penalty=sent.frequency_penalty or 0.0,
            repetition_penalty=sent.repetition_penalty,
            seed=sent.seed,
            top_k=None if sent.top_k is None else max(sent.top_k, 0),
            min_p=sent.min_p,
            min_tokens=MAX_INT if sent.ignore_eos else sent.min_tokens or 0,
        ),
        stop=_stop(sent.stop),
        top_logprobs=sent.top_logprobs or 0,
        response_messages=bool(sent.enable_response_messages),
        managing=next(iter(sent.context_management or ()), None),
    )


def _stop(sent: str | list[str] | None) -> tuple[str, ...]:
    """The texts before which an answer ends."""
    stops = (sent,) if isinstance(sent, str) else tuple(sent or ())
    for stop in stops:
        if not 1 <= len(stop) <= MAX_STOP_CHARS:
            raise invalid_value("stop", stop, f"Each has 1 to {MAX_STOP_CHARS} characters.")
    return stops


def _refuse_what_is_not_served(sent: CreateBody) -> None:
    for name, (harmless, advice) in UNSERVED.items():
        value: msgspec.Raw = getattr(sent, name)
        if value != ABSENT and bytes(memoryview(value)[: len(harmless) + 1]) != harmless:
            raise not_served(name, shown_raw(value), advice)
    if sent.client_metadata != ABSENT and bytes(memoryview(sent.client_metadata)[:1]) != b"{":
        raise invalid_value("client_metadata", shown_raw(sent.client_metadata), "It is an object.")
    if sent.reasoning and sent.reasoning.mode not in (None, "standard"):
        raise not_served("reasoning.mode", sent.reasoning.mode, _LATER)


def _template_options(raw: msgspec.Raw) -> dict[str, TemplateOption]:
    """Variables for a chat template. Raises InvalidRequest."""
    if bytes(memoryview(raw)[:5]) in (b"null", b"{}"):
        return {}
    name, size = "chat_template_kwargs", len(memoryview(raw))
    if size > MAX_TEMPLATE_BYTES:
        raise invalid_value(name, f"{size} bytes", f"At most {MAX_TEMPLATE_BYTES} bytes are allowed.")
    options = decode(raw, dict[str, TemplateOption], name)
    if len(options) > MAX_TEMPLATE_OPTIONS:
        raise invalid_value(name, f"{len(options)} members", f"At most {MAX_TEMPLATE_OPTIONS} are allowed.")
    for each in options:
        if each in TEMPLATES_OWN:
            raise invalid_value(name, each, "It is no variable of a template.")
    return options


def _refuse_what_does_not_go_together(
    sent: CreateBody, *, store: bool, keeps: bool, remembers: bool, warms: bool
) -> None:
    """Raise ApiError for parameters that contradict each other. `store`: this service stores. `keeps`: the response is
    there until its caller comes for it. `remembers`: its connection knows unstored responses. `warms`: no answer.
    """
    if sent.conversation is not None:
        _refuse_beside_a_conversation(sent)
    elif sent.input == ABSENT and sent.previous_response_id is None and sent.prompt is None and not warms:
        raise missing("input", "Give 'input', or 'previous_response_id' to continue a response.")
    if sent.stream_options is not None and not sent.stream:
        raise invalid_value("stream_options", "given without stream", "It is only allowed with 'stream': true.")
    continues = sent.previous_response_id is not None and not remembers
    if not store and (sent.store or continues or sent.conversation is not None):
        param = "store" if sent.store else "previous_response_id" if continues else "conversation"
        raise not_served(param, "given", "This service stores no responses; send the whole conversation as input.")
    if sent.previous_response_id is not None and bytes(sent.previous_input_messages) not in (b"null", b"[]"):
        raise invalid_value("previous_input_messages", "given with previous_response_id", "Send one of the two.")
    if sent.background and not keeps:
        raise not_served("background", "true with store: false", "background can only be used when `store` is true.")
    if (sent.min_tokens or 0) > (sent.max_output_tokens or MAX_INT):
        raise invalid_value("min_tokens", sent.min_tokens, "It can't be more than 'max_output_tokens'.")
    if sent.service_tier is not None and sent.service_tier not in TIERS:
        raise invalid_value("service_tier", sent.service_tier, f"Give one of {', '.join(TIERS)}, or leave it out.")


def _refuse_beside_a_window(sent: CreateBody, window: Window) -> None:
    """Raise InvalidRequest for parameters that contradict a window that ends later."""
    if not sent.background:
        why = "It needs 'background': true."
    elif sent.stream:
        why = "It is only allowed without 'stream'; retrieve such a response with GET."
    elif TIERS.get(sent.service_tier or "auto", "default") != "default":
        why = f"It is only allowed with the 'service_tier' default, and not with '{sent.service_tier}'."
    else:
        return
    raise invalid_value("background_options.completion_window", window, why)


def _refuse_beside_a_conversation(sent: CreateBody) -> None:
    """Raise InvalidRequest for parameters that contradict a conversation, which has a history of its own, and for one
    without an id.
    """
    if "" in (sent.conversation, getattr(sent.conversation, "id", None)):
        raise invalid_value("conversation", "", "Give the id of a conversation, or leave it out.")
    if sent.previous_response_id is not None:
        raise InvalidRequest(
            "Mutually exclusive parameters: previous_response_id, conversation. Send one of the two.",
            code="mutually_exclusive_parameters",
            param="conversation",
        )
    if bytes(sent.previous_input_messages) not in (b"null", b"[]"):
        raise invalid_value("previous_input_messages", "given with conversation", "Send one of the two.")


def read_metadata(raw: msgspec.Raw) -> dict[str, str]:
    """The metadata: at most 16 pairs, keys to 64 and values to 512 characters. Raises InvalidRequest."""
    if len(memoryview(raw)) > MAX_METADATA_BYTES:
        raise invalid_value("metadata", shown_raw(raw), f"It has at most {MAX_METADATA_PAIRS} short pairs.")
    sent: dict[str, msgspec.Raw] = decode(raw, dict[str, msgspec.Raw] | None, "metadata") or {}
    if len(sent) > MAX_METADATA_PAIRS:
        raise not_allowed(
            f"Too many pairs in 'metadata': {len(sent)}, at most {MAX_METADATA_PAIRS} are allowed.", "metadata"
        )
    found: dict[str, str] = {}
    for key, value in sent.items():
        found[key] = decode(value, str, f"metadata.{brief(key)}")
        check_pair(key, found[key])
    return found


def check_pair(key: str, value: str) -> None:
    """Raise InvalidRequest for a pair that is too long for metadata."""
    if len(key) > 64:
        raise invalid_value("metadata", key, "A key has at most 64 characters.")
    if len(value) > 512:
        raise invalid_value(f"metadata.{brief(key)}", value, "A value has at most 512 characters.")


def read_count(body: bytes, *, store: bool) -> CreateRequest:
    """The checked request of a body whose tokens are to be counted, which needs no model. `store`: this service stores.

    Nothing will be stored, so the body's own `store` and `background` are of no account. Raises ApiError.
    """
    checked = _check(decode(body, CreateBody), store=store, unstored_background=True, counts=True)
    return msgspec.structs.replace(checked, store=False)
