"""SGLang's servers, as read in SGLang 0.5.23: `/generate` takes token ids and gives token ids.

They notice a hang-up after two seconds, so a generation is ended by its id as well. Each request has an id of its own:
a response goes on behind a generation of its own that is just ending, and SGLang refuses an id that it knows.

Experimental: no real server has met this; tests hold it against a stand-in alone.
"""

import asyncio
import secrets
from typing import Any

import msgspec

from service.engine.pass_through import Passed
from service.engine.port import LEAST_LOGPROB, EngineError, EngineUnavailable, Generation, TokenLogprobs
from service.engine.servers.answer import Answer
from service.engine.servers.kind import (
    UNREADABLE,
    Ask,
    Count,
    Event,
    Facts,
    Kind,
    Request,
    ServerLoad,
    Wanted,
    decoded,
    read_event,
    refusal,
)
from service.engine.servers.token_ids import (
    SEEDS,
    GptOssId,
    likeliest,
    mean,
    parameters,
    prompt_json,
    read_format,
    read_page,
    stops,
    total,
)
from service.harmony.tokens import LAST_LEGAL

NAME = "SGLang"
GENERATE, ABORT, MODEL, METRICS, INFO = "/generate", "/abort_request", "/model_info", "/metrics", "/server_info"
READY = "/ready"
"""Not /health, which samples a token to find out."""

RUNNING, WAITING, USED = "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"
MODEL_TYPE = "gpt_oss"
"""The name of the only models that can be asked for by tokens here."""


class _Logprob(msgspec.Struct, array_like=True):
    logprob: float | None
    id: GptOssId

    @property
    def finite(self) -> float:
        """The log probability, which is None or infinite for an impossible token."""
        return LEAST_LOGPROB if self.logprob is None else max(self.logprob, LEAST_LOGPROB)


class _Reason(msgspec.Struct):
    type: str
    matched: int | str | list[int] | None = None
    message: str = ""
    status_code: int | None = None


class _Meta(msgspec.Struct):
    """`completion_tokens` counts all ids so far. The lists have an entry for each of the event's ids."""

    completion_tokens: Count
    finish_reason: _Reason | None = None
    cached_tokens: Count | None = None
    output_token_logprobs: list[_Logprob] | None = None
    output_top_logprobs: list[list[_Logprob] | None] | None = None


class _Event(Event):
    """With --incremental-streaming-output, `output_ids` are those behind the last event's."""

    output_ids: list[GptOssId] = []
    meta_info: _Meta | None = None


class _Info(msgspec.Struct):
    model_type: str | None = None
    max_total_num_tokens: Count = 0


_EVENT, _INFO = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Info)
_ENCODE = msgspec.json.Encoder().encode


class Sglang(Kind):
    """SGLang's servers, and routers before some."""

    name = NAME
    health = READY
    notices_hang_ups = False

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        unsaid = EngineUnavailable("the SGLang server does not say what kind of model it has; is it one?")
        kind = decoded(_INFO, await self.asked(ask, MODEL), unsaid).model_type
        if kind != MODEL_TYPE:
            raise EngineUnavailable(f"the SGLang server's model is of the type {kind!r}, and gpt-oss {MODEL_TYPE!r}")
        model, context_tokens, _ = await self.served(ask, wanted)
        return Facts(GENERATE, model, context_tokens)

    async def load(self, ask: Ask) -> ServerLoad:
        answers = [await ask("GET", path, None) for path in (METRICS, INFO)]
        return await asyncio.to_thread(read_told, *(body if status == 200 else b"" for status, body in answers))

    def request(self, facts: Facts, generation: Generation) -> Request:
        chance = secrets.randbits(64)
        rid = f"{generation.id}-{chance:016x}"
        return Request(GENERATE, request_body(generation, rid, chance), Request(ABORT, _ENCODE({"rid": rid})))

    def answer(self, generation: Generation) -> "SglangAnswer":
        return SglangAnswer(logprobs=generation.sampling.logprobs)

    def passed(self, passed: Passed) -> dict[str, Any]:
        return {**_salted(passed.cache_salt), "priority": -passed.priority}


def request_body(generation: Generation, rid: str, chance: int) -> bytes:
    """The body that asks for the generation `rid`. `chance` is the seed where none was asked for, as a server that goes
    by seeds has the same one for all without. SGLang serves higher priorities earlier. Raises EngineRefused.
    """
    sampling = generation.sampling
    named = parameters(sampling) | stops(sampling)
    named |= {
        "max_new_tokens": named.pop("max_tokens"),
        "top_k": sampling.top_k or -1,
        "skip_special_tokens": False,
        "no_stop_trim": True,
        "stream_interval": 1,
        "sampling_seed": (chance if sampling.seed is None else sampling.seed) % SEEDS,
    }
    if sampling.structural_tag is not None:
        read_format(sampling.structural_tag)  # one that is no JSON ends its scheduler
        named["structural_tag"] = sampling.structural_tag
    body: dict[str, Any] = {
        "rid": rid,
        "input_ids": prompt_json(generation, LAST_LEGAL),  # it would look others up outside of its table
        "stream": True,
        "priority": -generation.priority,
        "sampling_params": named,
        **_salted(generation.cache_salt),
    }
    if sampling.logprobs is not None:
        body |= {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": sampling.logprobs}
    return _ENCODE(body)


def _salted(salt: str | None) -> dict[str, str]:
    """The members that keep cached prefixes apart. Older servers know the second name alone, and ignore the first."""
    return {"cache_salt": salt, "extra_key": salt} if salt else {}


def read_told(page: bytes, info: bytes) -> ServerLoad:
    """The load, from a page of metrics (there is one with --enable-metrics) and `/server_info`. Either may be empty."""
    try:
        room = _INFO.decode(info).max_total_num_tokens
    except UNREADABLE:
        room = 0
    found = read_page(page, (RUNNING, WAITING, USED))
    return ServerLoad(total(found[RUNNING]), total(found[WAITING]), min(mean(found[USED]), 1.0), room)


class SglangAnswer(Answer):
    """A stream."""

    name = NAME
    _count = 0
    """How many ids were taken."""

    def _take(self, payload: bytes) -> None:
        event = read_event(NAME, _EVENT, payload)
        if self.finished:
            return
        if event.meta_info is None:
            raise EngineError("the SGLang server sent an event that doesn't say how many tokens there are")
        meta, reason = event.meta_info, event.meta_info.finish_reason
        if reason is not None and reason.type == "abort" and reason.status_code is not None and not self.ending:
            raise refusal(NAME, reason.status_code, reason.message)
        if reason is not None and isinstance(reason.matched, str):  # it was given no texts to stop at
            raise EngineError(f"the SGLang server stopped for {reason.matched[:100]!r}; its log says why")
        if meta.cached_tokens is not None:
            self._cached_tokens = meta.cached_tokens
        if meta.completion_tokens > self._count:
            self._add(event.output_ids, meta)
        if reason is not None:
            self._finish_as(reason.type)

    def _add(self, ids: list[int], meta: _Meta) -> None:
        """Take the ids of an event, which are new."""
        if len(ids) != meta.completion_tokens - self._count:
            raise EngineError("the SGLang server sent other tokens than new ones; --incremental-streaming-output helps")
        if self._alternatives is not None:
            given, tops = meta.output_token_logprobs or [], meta.output_top_logprobs or [None] * len(ids)
            if [each.id for each in given] != ids or len(tops) != len(ids):
                raise EngineError("the SGLang server sent tokens without their log probabilities")
            for each, top in zip(given, tops, strict=True):
                alternatives = ((other.id, other.finite) for other in top or ())
                self._logprobs.append(TokenLogprobs(each.finite, likeliest(alternatives, self._alternatives)))
        self._tokens += ids
        self._count = meta.completion_tokens
