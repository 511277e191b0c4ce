"""The wire of TensorRT-LLM's `trtllm-serve`: requests to JSON, answers from it, and what its errors are to us. Pure.

`/v1/completions` takes token ids, and gives token ids to who asks for no text. As read in its source of 2026. It
refuses a key that it doesn't know, so what is new there is sent where it is asked for alone.
"""

from typing import Annotated, Any

import msgspec

from service.engine.port import EngineError, EngineRefused, EngineUnavailable, Generation, Sampling
from service.engine.prompts import prompt_json
from service.engine.servers.constraint import read_format
from service.engine.servers.kind import UNREADABLE, Count, refusal
from service.harmony.tokens import ENDS, LAST_LEGAL

NAME = "TensorRT-LLM"
COMPLETIONS = "/v1/completions"

LEAST_TOP_P = 1e-6
"""It takes no top_p of 0; this one leaves the likeliest token alone too."""

BAN = -100.0
"""The least bias that it takes, of a token that is never to be sampled."""

SEEDS = 2**63
"""How many seeds there are."""

_Id = Annotated[int, msgspec.Meta(ge=0, le=LAST_LEGAL)]


class _Choice(msgspec.Struct):
    token_ids: list[_Id] | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens_details: _PromptDetails | None = None


class _Error(msgspec.Struct):
    message: str = ""
    code: int | None = None


class Event(msgspec.Struct):
    """One event of a stream, a whole answer, or the body of an error, which is in `error` or the body itself."""

    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: _Error | str | None = None
    object: str | None = None
    message: str = ""

    @property
    def cached_tokens(self) -> int | None:
        """How much of the prompt was cached, once the server says."""
        details = self.usage.prompt_tokens_details if self.usage else None
        return details.cached_tokens if details else None


class _Served(msgspec.Struct):
    id: str


class Models(msgspec.Struct):
    """The answer of `GET /v1/models`."""

    data: list[_Served]


_EVENT = msgspec.json.Decoder(Event)
_MODELS = msgspec.json.Decoder(Models)
_ENCODE = msgspec.json.Encoder().encode


def request_body(generation: Generation, model: str) -> bytes:
    """What to post for a generation. Raises EngineRefused."""
    usage = {"include_usage": True, "continuous_usage_stats": True}
    return _ENCODE(_asked(generation, model) | {"stream": True, "stream_options": usage})


def probe_body(prompt: list[int], model: str) -> bytes:
    """What to post for one token behind a prompt, with all that a generation has that a server might not know."""
    return _ENCODE(_asked(Generation("", prompt, Sampling(1, 0, stop_ids=ENDS[:1])), model))


def _asked(generation: Generation, model: str) -> dict[str, Any]:
    """A request, streamed or not. Raises EngineRefused."""
    sampling = generation.sampling
    if sampling.logprobs is not None:
        raise EngineRefused(
            "the server is TensorRT-LLM's, which names tokens by their text in log probabilities; leave out "
            "top_logprobs, and message.output_text.logprobs in include"
        )
    asked: dict[str, Any] = {
        "model": model,
        "prompt": prompt_json(generation, LAST_LEGAL),  # of others it would say that it is its own fault
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or LEAST_TOP_P,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "detokenize": False,
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        **_ends(sampling),
    }
    if sampling.seed is not None:
        asked["seed"] = sampling.seed % SEEDS
    if generation.priority:
        asked["priority"] = priority(generation.priority)
    if sampling.structural_tag is not None:
        form = read_format(sampling.structural_tag)
        asked["response_format"] = {"type": "structural_tag", "format": form}
    return asked


def _ends(sampling: Sampling) -> dict[str, Any]:
    """What ends it: no more than was asked for."""
    if not sampling.stop_ids:
        return {"ignore_eos": True}  # which switches off stop_token_ids as well
    asked: dict[str, Any] = {"stop_token_ids": list(sampling.stop_ids)}
    if others := set(ENDS) - set(sampling.stop_ids):  # the model's own end it, too
        asked["logit_bias"] = {str(id): BAN for id in sorted(others)}
    return asked


def priority(ours: int) -> float:
    """A priority as TensorRT-LLM has it: from 0 to 1, which is served first, where 0.5 is the usual one."""
    return 0.5 - 0.5 * ours / (1 + abs(ours))


def read_event(data: bytes) -> Event:
    """An event of a stream. Raises EngineError if it isn't one, and what an error event stands for."""
    try:
        event = _EVENT.decode(data)
    except UNREADABLE as error:
        raise EngineError("the TensorRT-LLM server sent something that is no event") from error
    if event.error is not None or event.object == "error":
        raise _refusal(500, event)
    return event


def read_probe(body: bytes) -> int | None:
    """How much of a prompt was cached, as a whole answer says. Raises EngineUnavailable if it has no token ids."""
    try:
        answer = _EVENT.decode(body)
    except UNREADABLE as error:
        raise EngineUnavailable("the TensorRT-LLM server does not answer a completion; is it one?") from error
    if not answer.choices or not answer.choices[0].token_ids:
        raise EngineUnavailable("the TensorRT-LLM server gives no token ids; is it recent?")
    return answer.cached_tokens


def read_models(body: bytes) -> Models:
    """What a server serves. Raises EngineUnavailable if it doesn't say."""
    try:
        return _MODELS.decode(body)
    except UNREADABLE as error:
        raise EngineUnavailable("the TensorRT-LLM server does not say what it serves; is it one?") from error


def read_refusal(status: int, body: bytes) -> EngineError:
    """What an answer with an HTTP error stands for."""
    try:
        return _refusal(status, _EVENT.decode(body))
    except UNREADABLE:
        return refusal(NAME, status, "")


def _refusal(status: int, said: Event) -> EngineError:
    """What an error stands for, which came with this status unless it says another."""
    if isinstance(said.error, _Error):
        return refusal(NAME, said.error.code or status, said.error.message)
    return refusal(NAME, status, said.error or said.message)
