"""The wire of Chat Completions, as far as an engine needs it: requests to JSON, and the events of a stream. Pure.

Every server gets the members that all servers know; a kind of server adds those that it alone knows. Members that the
request doesn't ask for are left out, as some servers refuse unknown ones.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from service.engine.port import EngineError, EngineRefused, EngineUnavailable, Generation
from service.engine.servers.kind import UNREADABLE, Count, RefusedAlone, refusal
from service.engine.servers.passing import said_in

CHAT = "/v1/chat/completions"
MODELS = "/v1/models"

FORBIDDEN = 403
NOT_KNOWN = (404, 405)

NOTHING = msgspec.Raw(b"null")

LEAST_TOP_P = 1e-6
"""Servers refuse a top_p of 0; this one leaves the likeliest token alone too."""


class TopLogprob(msgspec.Struct):
    """A token that might have been sampled."""

    token: str
    logprob: float


class TokenLogprob(TopLogprob):
    """The sampled token."""

    top_logprobs: list[TopLogprob] | None = None


class _Logprobs(msgspec.Struct):
    content: list[TokenLogprob] | None = None


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class CallDelta(msgspec.Struct):
    """A piece of a call."""

    index: int | None = None
    id: str | None = None
    function: _Function | None = None

    @property
    def name(self) -> str:
        """The name of the function to call, if this piece has it."""
        return (self.function and self.function.name) or ""

    @property
    def arguments(self) -> str:
        """This piece's part of the arguments."""
        return (self.function and self.function.arguments) or ""


class Delta(msgspec.Struct):
    """The next piece of a message. Reasoning has either of two names. A refusal counts as an answer: no model here was
    trained to tell it apart.
    """

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[CallDelta | None] | None = None

    @property
    def answer(self) -> str:
        """This piece's part of the answer."""
        return (self.content or "") + (self.refusal or "")


class Choice(msgspec.Struct):
    """The answer's next piece. Only vLLM gives `token_ids`, of which the number counts alone."""

    index: int | None = None
    delta: Delta | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None

    @property
    def likely(self) -> list[TokenLogprob]:
        """The log probabilities of its tokens."""
        return (self.logprobs and self.logprobs.content) or []


class Usage(msgspec.Struct):
    """The usage that a stream reports; a value that can't be a number of tokens counts as missing."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Event(msgspec.Struct):
    """One event of a stream."""

    choices: list[Choice | None] | None = None
    usage: msgspec.Raw = NOTHING
    prompt_token_ids: list[int] | None = None
    """Only vLLM gives them, with the first event."""
    error: Any = None
    object: str | None = None


class _Meta(msgspec.Struct):
    n_ctx: Count = 0


class Model(msgspec.Struct):
    """A model that is listed, with what vLLM, OpenRouter and llama.cpp call its context."""

    id: str
    max_model_len: Count | None = None
    context_length: Count | None = None
    meta: _Meta | None = None

    @property
    def context_tokens(self) -> int:
        """Its context in tokens, 0 where the server doesn't say."""
        return self.max_model_len or self.context_length or (self.meta.n_ctx if self.meta else 0)


class Models(msgspec.Struct):
    """The answer of `GET /v1/models`."""

    data: list[Model]


_EVENT = msgspec.json.Decoder(Event)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_COUNT = msgspec.json.Decoder(Count)
_MODELS = msgspec.json.Decoder(Models)
_ENCODE = msgspec.json.Encoder().encode


def request_body(generation: Generation, model: str, context_tokens: int, own: Mapping[str, object]) -> bytes:
    """The body of a generation; `own` are members for its kind of server alone. Raises EngineRefused.

    `max_tokens` is left out where the prompt might leave less room, as servers refuse that: the reader of the stream
    ends it there. No text has more tokens than bytes.
    """
    asks, sampling = generation.asks, generation.sampling
    if asks is None:
        raise EngineRefused("the server makes its prompts itself, and this one was made here")
    body: dict[str, Any] = {
        "model": model,
        "messages": msgspec.Raw(asks.transcript.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or LEAST_TOP_P,
    }
    if asks.size + sampling.max_tokens <= context_tokens:
        body["max_tokens"] = sampling.max_tokens
    if asks.transcript.tools != b"[]":
        body |= {"tools": msgspec.Raw(asks.transcript.tools), "parallel_tool_calls": asks.parallel}
        body |= {} if asks.choice == "auto" else {"tool_choice": asks.choice}
    if asks.form:
        body["response_format"] = msgspec.Raw(asks.form)
    if sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": sampling.logprobs}
    wished = {
        "top_k": sampling.top_k or None,
        "min_p": sampling.min_p or None,
        "presence_penalty": sampling.presence_penalty or None,
        "frequency_penalty": sampling.frequency_penalty or None,
        "repetition_penalty": sampling.repetition_penalty if sampling.repetition_penalty != 1 else None,
        "seed": sampling.seed,
    }
    return _ENCODE(body | {name: value for name, value in wished.items() if value is not None} | dict(own))


def read_event(name: str, payload: bytes) -> Event:
    """An event of a stream. Raises EngineError if it isn't one, and the error of an error event."""
    try:
        event = _EVENT.decode(payload)
    except UNREADABLE as error:
        raise EngineError(f"the {name} server sent something that is no event") from error
    if event.error is not None or event.object == "error":
        said = said_in(payload)
        status = said.code if isinstance(said.code, int) and 400 <= said.code < 600 else 500
        raise _refusal(name, status, said.message)
    return event


def read_usage(told: msgspec.Raw) -> Usage:
    """The usage, in whichever form a server reports it."""
    said = _members(told)
    cached = _members(said.get("prompt_tokens_details", NOTHING)).get("cached_tokens", NOTHING)
    prompt, sampled = (_count(said.get(name, NOTHING)) for name in ("prompt_tokens", "completion_tokens"))
    return Usage(prompt, sampled, _count(cached))


def _members(told: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return _OBJECT.decode(told)
    except UNREADABLE:
        return {}


def _count(told: msgspec.Raw) -> int | None:
    """A number of tokens; None for anything else."""
    try:
        return _COUNT.decode(told)
    except UNREADABLE:
        return None


def read_models(name: str, body: bytes) -> list[Model]:
    """The models that a server serves. Raises EngineUnavailable if it doesn't say."""
    try:
        return _MODELS.decode(body).data
    except UNREADABLE as error:
        raise EngineUnavailable(f"the {name} server does not say what it serves; is it one?") from error


def read_refusal(name: str, status: int, body: bytes) -> EngineError:
    """The error that an answer with an HTTP error status stands for."""
    return _refusal(name, status, said_in(body).message)


def _refusal(name: str, status: int, message: object) -> EngineError:
    """The error for an HTTP status. Status 403 may refuse one prompt alone, where a provider moderates prompts, and 404
    or 405 one request alone. As an EngineUnavailable they would make all others wait for the server, too. Their
    messages aren't repeated, as they may name keys.
    """
    if status == FORBIDDEN:
        return EngineRefused(f"the {name} server forbids it (status {status})")
    if status in NOT_KNOWN:
        return RefusedAlone(f"the {name} server does not serve this request (status {status})")
    return refusal(name, status, message if isinstance(message, str) else "")
