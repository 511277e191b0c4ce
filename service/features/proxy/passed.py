"""Requests in a server's own API that are passed on: the members that are read, left out, or refused.

A request may say what concerns itself alone. Members that reach further are refused: another tenant's cache, a place
in a queue, files and addresses that the server could open, code that it would run. So are unknown members, of a
message or a block too, as a server may learn a parameter tomorrow that reaches further. All else goes on as the bytes
that came. Pure.
"""

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from service.api.content import MAX_PARTS
from service.api.request import TEMPLATES_OWN
from service.api.tools.format import read_format
from service.decoding import ABSENT, advice, decode, decode_list, shown_raw
from service.errors import InvalidRequest, brief, invalid_value, missing, not_allowed

MAX_ANSWERS = 64
"""The most answers of one request: its prompts, times `n`."""

MAX_STOPS = 32
"""The most stop strings, or words to be avoided: a server compares each with every token."""

MAX_TOP = 20
"""The most alternatives of a token."""

MAX_INPUTS = 2048
"""The most texts in one request for embeddings, as at OpenAI, or to be ranked or scored."""

MAX_QUESTIONS = 256
"""The most questions of one request for decisions."""

MAX_MESSAGES = 4096
MAX_TOOLS = 512
MAX_TOOLS_BYTES = 1_048_576

MAX_NESTED = 3
"""How deep blocks of a message may stand within each other: a picture in a document in the result of a tool."""

MAX_NAME_CHARS = 256
"""The most characters of the name of a model, a salt or a key."""

LOOKED_AT = 128
"""Others may run after so many messages, or parts of them."""


class Endpoint(StrEnum):
    """The endpoints whose requests may be passed on."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"
    MESSAGES = "/v1/messages"
    COUNT = "/v1/messages/count_tokens"
    RERANK = "/v1/rerank"
    SCORE = "/v1/score"
    DECISIONS = "/v1/decisions"
    TRANSCRIBE = "/v1/audio/transcriptions"


GENERATES = frozenset({Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.MESSAGES})
"""Those that sample tokens, as many as a request wants."""

SALTED = frozenset({Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS, Endpoint.RERANK, Endpoint.SCORE})
"""Those that servers keep apart by a salt, and queue by a priority; at the others few know either."""

CACHED = frozenset({Endpoint.MESSAGES, Endpoint.DECISIONS, Endpoint.TRANSCRIBE})
"""Those of the others whose prompts servers may find in their cache: with several tenants, one would learn what another
has asked.
"""

FORMS = frozenset({Endpoint.TRANSCRIBE})
"""Those that take a form with a file: its fields are the members."""

OURS = frozenset(
    {
        *("model", "cache_salt", "priority", "service_tier", "prompt_cache_key", "request_id", "cache_prompt"),
        *("metadata", "safety_identifier", "store", "prompt_cache_retention", "context_management"),
    }
)
"""Members that are read here, or are for nobody behind us; they don't go on as they came."""

_SAMPLED = frozenset(
    {
        *("stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "repeat_penalty", "n", "user"),
        *("max_tokens", "min_tokens", "ignore_eos", "logit_bias", "bad_words", "allowed_token_ids", "logprobs"),
        *("prompt_logprobs", "skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output"),
        *("add_special_tokens", "return_token_ids", "return_tokens_as_token_ids", "truncate_prompt_tokens"),
        *("response_format", "echo", "timings_per_token"),
    }
)

_CONVERSED = frozenset({"messages", "system", "tools", "tool_choice", "chat_template_kwargs"})
_COMPARED = frozenset({"user", "truncate_prompt_tokens", "use_activation"})

MEMBERS: dict[Endpoint, frozenset[str]] = {
    Endpoint.CHAT: _SAMPLED
    | {
        *("messages", "tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "top_logprobs"),
        *("max_completion_tokens", "reasoning_effort", "verbosity", "modalities", "chat_template_kwargs"),
        *("add_generation_prompt", "continue_final_message", "include_reasoning", "thinking_token_budget"),
        *("reasoning_format", "return_progress", "prediction"),
    },
    Endpoint.COMPLETIONS: _SAMPLED | {"prompt", "suffix", "best_of"},
    Endpoint.EMBEDDINGS: frozenset(
        {"input", "dimensions", "encoding_format", "user", "truncate_prompt_tokens", "add_special_tokens", "normalize"}
    ),
    Endpoint.MESSAGES: _CONVERSED
    | {
        *("max_tokens", "stop_sequences", "stream", "temperature", "top_k", "top_p", "thinking", "output_config"),
        *("cache_control", "speed"),
    },
    Endpoint.COUNT: _CONVERSED | {"thinking", "output_config", "cache_control"},
    Endpoint.RERANK: _COMPARED | {"query", "documents", "top_n", "return_documents", "max_tokens_per_doc"},
    Endpoint.SCORE: _COMPARED | {"text_1", "text_2", "queries", "documents", "data_1", "data_2"},
    Endpoint.DECISIONS: frozenset({"input", "questions", "prompt_cache_options"}),
    Endpoint.TRANSCRIBE: frozenset(
        {
            *("language", "prompt", "hotwords", "to_language", "response_format", "chunking_strategy", "include[]"),
            *("timestamp_granularities[]", "stream", "stream_include_usage", "stream_continuous_usage_stats"),
            *("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty"),
            *("repetition_penalty", "max_completion_tokens"),
        }
    ),
}
"""The members that may go on to each endpoint."""

FURTHER = {
    name: why
    for why, names in {
        "It would make the server fetch another server's memory.": (
            *("kv_transfer_params", "ec_transfer_params", "disaggregated_params", "bootstrap_host", "bootstrap_port"),
        ),
        "It affects other requests, too.": ("id_slot", "session_params", "session_id", "rid", "extra_key"),
        "It would make the server run or load code of the request.": (
            *("prompt_embeds", "logits_processors", "custom_logit_processor", "vllm_xargs", "mm_processor_kwargs"),
        ),
        "Only the operator chooses the served model.": ("lora", "lora_path", "lora_request"),
        "The server has its own; send 'chat_template_kwargs'.": ("chat_template", "documents"),
        "Send 'response_format', or a grammar to POST /v1/responses, where it is checked.": (
            *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "regex", "ebnf"),
            *("grammar", "json_schema", "structural_tag"),
        ),
        "Passed-on requests can't search; POST /v1/responses can.": ("web_search_options",),
        "Passed-on requests can't call it; POST /v1/responses can.": ("mcp_servers", "container"),
        "Passed-on requests are not stored; send all messages (with Anthropic's tool_runner, thread=False).": (
            "thread",
        ),
        "Send 'n'.": ("use_beam_search",),
    }.items()
    for name in names
}
"""The reasons why some members are refused."""

_TIERS = {"priority": -1, "fast": -1, "flex": 1}


class ReadPassed(msgspec.Struct, frozen=True):
    """A request that was read: the members that go on, and our part of it.

    `answers` counts its generations, and `beginning` is the beginning of its conversation. `priority` is as an
    engine's; whether the tenant may have one below 0 is decided later. `tier` is the priority of its service tier.
    """

    endpoint: Endpoint
    model: str
    members: dict[str, msgspec.Raw]
    answers: int
    stream: bool
    priority: int | None
    tier: int
    cache_salt: str
    cache_key: str
    beginning: bytes

    def within(self, context: int, most: int = 0) -> dict[str, msgspec.Raw]:
        """The members that go on. None asks for more tokens than a context has, or than the `most` of an answer, where
        0 is no limit. The limit is put in where the request names none.
        """
        tokens = min(context, most or context)
        raw = msgspec.Raw(b"%d" % tokens)
        named = {name: decode(self.members[name], int | None, name) for name in _LIMITS if name in self.members}
        over = {name: raw for name, limit in named.items() if limit is not None and limit > tokens}
        if not most or self.endpoint not in GENERATES:
            return self.members | over
        free = {name for name, limit in named.items() if limit is None or limit < 0}  # a server may heed that one
        kept = {name: each for name, each in self.members.items() if name not in free}
        return kept | (over if len(free) < len(named) else {"max_tokens": raw})


_Name = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]


class _Ours(msgspec.Struct):
    """The members that are read of any request that has them."""

    model: _Name | None = None
    cache_salt: _Name | None = None
    prompt_cache_key: _Name | None = None
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None = None
    service_tier: _Name | None = None
    store: bool | None = None
    stream: bool | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_ANSWERS)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_ANSWERS)] | None = None
    max_tokens: Annotated[int, Meta(ge=-1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=-1)] | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    stop_sequences: Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    bad_words: Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    logprobs: bool | Annotated[int, Meta(ge=0, le=MAX_TOP)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP)] | None = None
    prompt_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP)] | None = None
    chat_template_kwargs: dict[str, bool | int | float | str | None] | None = None


class _Called(msgspec.Struct, forbid_unknown_fields=True):
    name: str | None = None
    arguments: str | dict[str, msgspec.Raw] | None = None
    parsed_arguments: msgspec.Raw = ABSENT
    input: str | None = None


class _Call(msgspec.Struct, forbid_unknown_fields=True):
    id: str | None = None
    type: str | None = None
    index: int | None = None
    function: _Called | None = None
    custom: _Called | None = None
    extra_content: msgspec.Raw = ABSENT
    provider_specific_fields: msgspec.Raw = ABSENT


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    """A message of Anthropic's, or of Chat Completions with no more than this."""

    role: str
    content: msgspec.Raw = ABSENT


class _ChatMessage(_Message, forbid_unknown_fields=True):
    """A message as clients write it, or send back of an answer: its sound is at whoever made it. The last members are
    those of openai's parsed answers, LiteLLM and OpenRouter.
    """

    name: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[_Call], Meta(max_length=MAX_PARTS)] | None = None
    function_call: _Called | None = None
    cache_control: dict[str, str] | None = None
    annotations: msgspec.Raw = ABSENT
    audio: None = None
    parsed: msgspec.Raw = ABSENT
    images: Annotated[list[msgspec.Raw], Meta(max_length=0)] | None = None
    thinking_blocks: msgspec.Raw = ABSENT
    reasoning_details: msgspec.Raw = ABSENT
    provider_specific_fields: msgspec.Raw = ABSENT


class _Url(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    detail: str | None = None


class _Sound(msgspec.Struct, forbid_unknown_fields=True):
    data: str
    format: str | None = None


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    """A part of a message's content: an id of a cached picture would be another tenant's."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: str | _Url | None = None
    input_audio: _Sound | None = None
    cache_control: dict[str, str] | None = None


class _Block(msgspec.Struct, forbid_unknown_fields=True):
    """A block of a message, or a part of an item. A file may be in its source, and blocks in its content."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    image_url: str | _Url | None = None
    detail: str | None = None
    source: msgspec.Raw = ABSENT
    content: msgspec.Raw = ABSENT
    title: str | None = None
    context: str | None = None
    citations: msgspec.Raw = ABSENT
    annotations: msgspec.Raw = ABSENT
    logprobs: msgspec.Raw = ABSENT
    cache_control: dict[str, str] | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = ABSENT
    caller: dict[str, str] | None = None
    tool_use_id: str | None = None
    tool_name: str | None = None
    is_error: bool | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class _Source(msgspec.Struct, forbid_unknown_fields=True):
    type: str | None = None
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    content: msgspec.Raw = ABSENT


class _Format(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    json_schema: dict[str, msgspec.Raw] | None = None


class _Output(msgspec.Struct, forbid_unknown_fields=True):
    """The configuration of an answer of Anthropic's."""

    effort: str | None = None
    format: dict[str, msgspec.Raw] | None = None
    task_budget: msgspec.Raw = ABSENT


_LIMITS = ("max_tokens", "max_completion_tokens")
_LITERAL = frozenset({*_LIMITS, "stream", "store", "priority"})
"""Members that are no texts, which a field of a form always is."""
_IS_LITERAL = re.compile("true|false|0|-?[1-9][0-9]{0,17}", re.IGNORECASE)
_ID_LIST = b"0123456789, \t\r\n"


def members_of_form(fields: Iterable[tuple[str, str]]) -> bytes:
    """The JSON for the fields of a form, to be read as a body. Those whose names end with `[]` may come several times.
    Raises InvalidRequest.
    """
    members: dict[str, Any] = {}
    for name, value in fields:
        if name.endswith("[]"):
            members.setdefault(name, []).append(value)
        elif name in members or name == "file":
            raise not_allowed(f"The form has '{brief(name)}' more than once; send it once.", brief(name))
        else:
            literal = name in _LITERAL and _IS_LITERAL.fullmatch(value)
            members[name] = msgspec.Raw(value.lower().encode()) if literal else value
    return msgspec.json.encode(members)


def read_passed(body: bytes, endpoint: Endpoint) -> Generator[None, None, ReadPassed]:
    """Read a body, in steps. Raises InvalidRequest."""
    members: dict[str, msgspec.Raw] = decode(body, dict[str, msgspec.Raw])
    known = MEMBERS[endpoint]
    for name in members:
        if name not in known and name not in OURS:
            told = f"Unknown parameter: '{brief(name)}'. {FURTHER.get(name) or advice(name, known)}"
            raise InvalidRequest(told, code="unknown_parameter", param=brief(name))
    ours = decode(body, _Ours)
    if ours.model is None:
        raise missing("model", "GET /v1/models lists the models.")
    if ours.store:
        raise invalid_value("store", "true", "Passed-on requests are not stored; POST /v1/responses stores responses.")
    for name in ours.chat_template_kwargs or {}:
        if name in TEMPLATES_OWN:
            raise invalid_value("chat_template_kwargs", name, "It is no variable of a template.")
    yield
    beginning, prompts, pieces = bytearray(), 1, iter(())
    if endpoint is Endpoint.CHAT:
        pieces = _conversation(members, _ChatMessage, _check_parts)
    elif endpoint in (Endpoint.MESSAGES, Endpoint.COUNT):
        pieces = _conversation(members, _Message, _check_blocks)
    elif endpoint is Endpoint.COMPLETIONS:
        prompts = _count(_require(members, "prompt"), "prompt", MAX_ANSWERS)
    elif endpoint is Endpoint.EMBEDDINGS:
        _count(_require(members, "input"), "input", MAX_INPUTS)
    elif endpoint is Endpoint.DECISIONS:
        pieces = _decision_parts(members)
    elif endpoint not in FORMS:
        if endpoint is Endpoint.RERANK:
            _require(members, "query")
            _require(members, "documents")
        for name in _COMPARABLE:
            if name in members:
                _texts(members[name], name)
    for number, piece in enumerate(pieces):
        beginning += piece
        if number % LOOKED_AT == 0:
            yield
    _check_tools(members)
    if endpoint in GENERATES or endpoint is Endpoint.COUNT:
        yield from _check_format(members)
    answers = prompts * max(ours.n or 1, ours.best_of or 1)
    if answers > MAX_ANSWERS:
        raise invalid_value("n", ours.n, f"With {prompts} prompts that is {answers} answers, at most {MAX_ANSWERS}.")
    return ReadPassed(
        endpoint=endpoint,
        model=ours.model,
        members={name: value for name, value in members.items() if name not in OURS},
        answers=answers,
        stream=bool(ours.stream),
        priority=ours.priority,
        tier=_TIERS.get(ours.service_tier or "", 0),
        cache_salt=ours.cache_salt or "",
        cache_key=ours.prompt_cache_key or "",
        beginning=bytes(beginning),
    )


def _require(members: dict[str, msgspec.Raw], name: str) -> msgspec.Raw:
    if bytes(members.get(name, ABSENT)) == b"null":
        raise missing(name, "It is the model's input.")
    return members[name]


def _check_tools(members: dict[str, msgspec.Raw]) -> None:
    for name in ("tools", "functions"):
        raw = members.get(name, ABSENT)
        if (size := len(memoryview(raw))) > MAX_TOOLS_BYTES:
            raise invalid_value(name, f"{size} bytes", f"At most {MAX_TOOLS_BYTES} bytes are allowed.")
        decode_list(raw, MAX_TOOLS, name)


def _check_format(members: dict[str, msgspec.Raw]) -> Generator[None, None, None]:
    """Raise InvalidRequest for a format of the answer that POST /v1/responses would refuse with `strict`: the server
    makes a grammar of any.
    """
    name = "response_format"
    given = decode(members.get(name, ABSENT), _Format | None, name)
    if given is not None and given.type == "json_schema":
        if given.json_schema is None:
            raise missing(f"{name}.json_schema", "It has the format's name and its schema.")
        yield from _check_schema(given.json_schema, f"{name}.json_schema")
    elif given is not None:
        yield from read_format(members[name], name)
    output = decode(members.get("output_config", ABSENT), _Output | None, "output_config")
    if output is not None and output.format is not None:
        yield from _check_schema({"name": msgspec.Raw(b'"answer"')} | output.format, "output_config.format")


def _check_schema(given: dict[str, msgspec.Raw], where: str) -> Generator[None, None, None]:
    """Raise InvalidRequest for a schema that can't be enforced, whether it is strict or not."""
    own = {"type": msgspec.Raw(b'"json_schema"'), "strict": msgspec.Raw(b"true")}
    yield from read_format(msgspec.Raw(msgspec.json.encode(given | own)), where)


def _conversation(
    members: dict[str, msgspec.Raw], kind: type[_Message], check: Callable[[msgspec.Raw, str], Iterator[bytes]]
) -> Iterator[bytes]:
    """The beginning of a conversation, up to the user's first message; b"" for each message and part behind that.

    Raises InvalidRequest for a message that can't go on, as `check` finds with its parts.
    """
    if "system" in members:
        system = members["system"]
        yield bytes(system)
        if _is_list_of_parts(system, "system"):
            yield from check(system, "system")
    spoken = False
    for place, each in enumerate(decode_list(_require(members, "messages"), MAX_MESSAGES, "messages")):
        where = f"messages[{place}]"
        message = decode(each, kind, where)
        yield b"" if spoken else bytes(each)
        spoken = spoken or message.role == "user"
        if _is_list_of_parts(message.content, f"{where}.content"):
            yield from check(message.content, f"{where}.content")


def _check_parts(raw: msgspec.Raw, where: str) -> Iterator[bytes]:
    for number, part in enumerate(decode_list(raw, MAX_PARTS, where)):
        at = f"{where}[{number}]"
        _check_picture(decode(part, _Part, at).image_url, at)
        yield b""


def _check_picture(picture: str | _Url | None, where: str) -> None:
    """Raise InvalidRequest for a picture that the server would have to fetch: it may reach what the sender can't."""
    url = picture.url if isinstance(picture, _Url) else picture
    if url is not None and not url.startswith("data:"):
        raise invalid_value(f"{where}.image_url", url, "Send the image itself, as a data: URL.")


def _decision_parts(members: dict[str, msgspec.Raw]) -> Iterator[bytes]:
    """Raises InvalidRequest for what nothing can be decided about; b"" for each item and block."""
    lists = [("questions", MAX_QUESTIONS)]
    if _is_list_of_parts(_require(members, "input"), "input"):
        lists.append(("input", MAX_MESSAGES))
    _require(members, "questions")
    for name, limit in lists:
        for place, each in enumerate(decode_list(members[name], limit, name)):
            where = f"{name}[{place}]"
            for part, raw in decode(each, dict[str, msgspec.Raw], where).items():
                if _is_list(raw) or bytes(memoryview(raw)[:1]) == b"{":
                    yield from _check_blocks(raw, f"{where}.{brief(part)}")
            yield b""


def _is_list(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"["


def _is_list_of_parts(raw: msgspec.Raw, where: str) -> bool:
    """Whether this is a list, and no text nor null. Raises InvalidRequest for anything else."""
    if bytes(memoryview(raw)[:1]) not in (b'"', b"[", b"n"):
        raise invalid_value(where, shown_raw(raw), "Send a text, or a list of parts.")
    return _is_list(raw)


def _check_blocks(raw: msgspec.Raw, where: str, left: int = MAX_NESTED) -> Iterator[bytes]:
    """Raises InvalidRequest where a block, or one inside of it, has a file that isn't in the request itself; b"" for
    each that it looks at.
    """
    if not left:
        raise invalid_value(where, shown_raw(raw), f"Blocks can be nested up to {MAX_NESTED} deep.")
    for place, each in enumerate(decode_list(raw, MAX_PARTS, where)):
        here = f"{where}[{place}]"
        if bytes(memoryview(each)[:1]) == b'"':  # a text in a block's place
            continue
        block = decode(each, _Block, here)
        _check_picture(block.image_url, here)
        inside = [(block.content, f"{here}.content")]
        if bytes(memoryview(block.source)[:1]) not in (b'"', b"n"):
            source = decode(block.source, _Source, f"{here}.source")
            for name, value in (("url", source.url), ("file_id", source.file_id)):
                if value is not None:
                    raise invalid_value(f"{here}.source.{name}", value, "Send the file itself, as base64.")
            inside.append((source.content, f"{here}.source.content"))
        for nested, at in inside:
            if _is_list_of_parts(nested, at):
                yield from _check_blocks(nested, at, left - 1)
        yield b""


_COMPARABLE = ("query", "documents", "text_1", "text_2", "queries", "data_1", "data_2")


def _texts(raw: msgspec.Raw, where: str) -> None:
    """Raise InvalidRequest for what is neither a text nor a list of them: a picture may be anywhere."""
    each = decode_list(raw, MAX_INPUTS, where) if _is_list(raw) else [raw]
    for place, text in enumerate(each):
        if bytes(memoryview(text)[:1]) != b'"':
            at = f"{where}[{place}]" if _is_list(raw) else where
            raise invalid_value(at, shown_raw(text), "Send a text.")


def _count(raw: msgspec.Raw, where: str, most: int) -> int:
    """The number of prompts in a text, token ids, or a list of either. Raises InvalidRequest."""
    if bytes(memoryview(raw)[:1]) != b"[":
        decode(raw, str, where)
        return 1
    if _is_ids(raw):
        return 1
    each = decode_list(raw, most, where)
    for place, prompt in enumerate(each):
        if bytes(memoryview(prompt)[:1]) != b'"' and not _is_ids(prompt):
            raise invalid_value(f"{where}[{place}]", shown_raw(prompt), "Send texts, or lists of token ids.")
    return max(1, len(each))


def _is_ids(raw: msgspec.Raw) -> bool:
    """Whether this is a list of numbers; reading millions of them would take long."""
    return bytes(raw).translate(None, _ID_LIST) == b"[]"
