"""The wire of an SGLang server: requests to JSON, answers from it, and what its errors are to us. Pure.

`/generate` takes token ids and gives token ids. As read in SGLang 0.5.23. A key that a server doesn't know is ignored
in silence.
"""

from typing import Annotated, Any

import msgspec

from service.engine.page import mean, read_page, total
from service.engine.port import EngineError, EngineUnavailable, Generation, Sampling
from service.engine.prompts import prompt_json
from service.engine.servers.constraint import read_format
from service.engine.servers.kind import UNREADABLE, Count, Told, refusal
from service.harmony.tokens import ENDS, LAST_LEGAL

NAME = "SGLang"
GENERATE = "/generate"
ABORT = "/abort_request"

METRICS, INFO = "/metrics", "/server_info"
RUNNING, WAITING, USED = "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"

READY = "/ready"
"""Not /health, which samples a token to find out."""

LEAST_TOP_P = 1e-6
"""SGLang refuses a top_p of 0; this one leaves the likeliest token alone too."""

BAN = -100.0
"""The bias of a token that is never to be sampled."""

SEEDS = 2**63
"""How many seeds there are."""

_Id = Annotated[int, msgspec.Meta(ge=0, le=LAST_LEGAL)]


class Logprob(msgspec.Struct, array_like=True):
    """A token's: [log probability, id, text]."""

    logprob: float | None
    id: _Id


class Reason(msgspec.Struct):
    """Why it stopped. `matched` is an id, or what else there was to stop at."""

    type: str
    matched: int | str | list[int] | None = None
    message: str | None = None
    status_code: int | None = None


class Meta(msgspec.Struct):
    """What is said of an answer. The lists have an entry for each of the event's ids."""

    finish_reason: Reason | None = None
    completion_tokens: Count | None = None
    """How many ids were sampled so far."""
    cached_tokens: Count | None = None
    output_token_logprobs: list[Logprob] | None = None
    output_top_logprobs: list[list[Logprob] | None] | None = None


class _Error(msgspec.Struct):
    message: str = ""
    code: int | None = None


class Event(msgspec.Struct):
    """One event of a stream, or the body of an error. `output_ids` are all so far, or those behind the last event's."""

    output_ids: list[_Id] = []
    meta_info: Meta | None = None
    error: _Error | str | None = None


class _Room(msgspec.Struct):
    max_total_num_tokens: Count = 0


class _Served(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class Models(msgspec.Struct):
    """The answer of `GET /v1/models`."""

    data: list[_Served]


class ModelInfo(msgspec.Struct):
    """The answer of `GET /model_info`."""

    model_type: str | None


_EVENT = msgspec.json.Decoder(Event)
_MODELS = msgspec.json.Decoder(Models)
_ROOM = msgspec.json.Decoder(_Room)
_INFO = msgspec.json.Decoder(ModelInfo)
_ENCODE = msgspec.json.Encoder().encode


def request_body(generation: Generation, rid: str, chance: int) -> bytes:
    """What to post for a generation, which is `rid` there. `chance` is the seed where none was asked for: a server that
    goes by seeds has one and the same for all without. Raises EngineRefused.
    """
    sampling = generation.sampling
    body: dict[str, Any] = {
        "rid": rid,
        "input_ids": prompt_json(generation, LAST_LEGAL),  # it would look others up outside of its table
        "stream": True,
        "priority": priority(generation.priority),
        "sampling_params": parameters(sampling, chance),
        **salted(generation.cache_salt),
    }
    if sampling.logprobs is not None:
        body |= {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": sampling.logprobs}
    return _ENCODE(body)


def parameters(sampling: Sampling, chance: int) -> dict[str, Any]:
    """The parameters by SGLang's names. Raises EngineRefused."""
    asked: dict[str, Any] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p or LEAST_TOP_P,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "repetition_penalty": sampling.repetition_penalty,
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "stream_interval": 1,
        "sampling_seed": (chance if sampling.seed is None else sampling.seed) % SEEDS,
    }
    if sampling.stop_ids:
        asked["stop_token_ids"] = list(sampling.stop_ids)
        if others := set(ENDS) - set(sampling.stop_ids):  # the model's own end it, too
            asked["logit_bias"] = {str(id): BAN for id in sorted(others)}
    else:
        asked["ignore_eos"] = True  # which switches off stop_token_ids as well
    if sampling.structural_tag is not None:
        read_format(sampling.structural_tag)
        asked["structural_tag"] = sampling.structural_tag
    return asked


def priority(ours: int) -> int:
    """A priority as SGLang has it, which serves the higher ones earlier."""
    return -ours


def salted(salt: str | None) -> dict[str, str]:
    """What keeps cached prefixes apart. Older servers know the second name alone, and ignore the first in silence."""
    return {"cache_salt": salt, "extra_key": salt} if salt else {}


def abort_body(rid: str) -> bytes:
    """What to post to end a generation."""
    return _ENCODE({"rid": rid})


def read_event(data: bytes) -> Event:
    """An event of a stream. Raises EngineError if it isn't one, and what an error event stands for."""
    try:
        event = _EVENT.decode(data)
    except UNREADABLE as error:
        raise EngineError("the SGLang server sent something that is no event") from error
    if event.error is not None:
        raise _refusal(500, event.error)
    return event


def aborted(reason: Reason) -> EngineError:
    """What a generation stands for that the server ended for a reason of its own."""
    if reason.status_code is None:
        return EngineUnavailable("the SGLang server aborted the generation")
    return refusal(NAME, reason.status_code, reason.message or "")


def read_models(body: bytes) -> Models:
    """What a server serves. Raises EngineUnavailable if it doesn't say."""
    try:
        return _MODELS.decode(body)
    except UNREADABLE as error:
        raise EngineUnavailable("the SGLang server does not say what it serves; is it one?") from error


def read_info(body: bytes) -> ModelInfo:
    """What kind of model that is. Raises EngineUnavailable if it doesn't say."""
    try:
        return _INFO.decode(body)
    except UNREADABLE as error:
        raise EngineUnavailable("the SGLang server does not say what kind of model it has; is it one?") from error


def read_refusal(status: int, body: bytes) -> EngineError:
    """What an answer with an HTTP error stands for."""
    try:
        error = _EVENT.decode(body).error
    except UNREADABLE:
        error = None
    return refusal(NAME, status, "") if error is None else _refusal(status, error)


def _refusal(status: int, error: _Error | str) -> EngineError:
    """What an error stands for, which came with this status unless it says another."""
    if isinstance(error, str):
        return refusal(NAME, status, error)
    return refusal(NAME, error.code or status, error.message)


def read_told(page: bytes, info: bytes) -> Told:
    """What it tells of its load: a page of metrics, which there is with --enable-metrics, and `/server_info`, whose
    `max_total_num_tokens` is the room of its cache. Either may be empty.
    """
    try:
        room = _ROOM.decode(info).max_total_num_tokens
    except UNREADABLE:
        room = 0
    found = read_page(page, (RUNNING, WAITING, USED))
    return Told(total(found[RUNNING]), total(found[WAITING]), min(mean(found[USED]), 1.0), room)
