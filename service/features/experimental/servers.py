"""SGLang's servers, as read in SGLang 0.5.23, and TensorRT-LLM's `trtllm-serve`, as read in its source of 2026: both
take token ids and give token ids. Experimental: no real server has met this; tests hold it against tables alone.

SGLang notices a hang-up after two seconds, so a generation is ended by its id as well. Each request has an id of its
own: a response goes on behind a generation of its own that is just ending, and SGLang refuses an id that it knows.

TensorRT-LLM gives ids where no text is asked for. It refuses unknown keys, so newer keys are sent only where they are
needed. It has no salts that keep tenants' cached prompts apart. So a server that has cached prompts is for one tenant
alone, and for requests without a salt of their own: a probe asks the same thing twice to see whether it has.
"""

import asyncio
import secrets
from typing import Any

import msgspec

from service.engine.port import (
    LEAST_LOGPROB,
    EngineError,
    EngineRefused,
    EngineUnavailable,
    Generation,
    Passed,
    Sampling,
    TokenLogprobs,
)
from service.engine.servers.answer import Answer
from service.engine.servers.kind import (
    UNREADABLE,
    Ask,
    Count,
    Request,
    ServerEvent,
    ServerFacts,
    ServerKind,
    ServerLoad,
    Wanted,
    decode,
    read_event,
    refusal,
)
from service.engine.servers.token_ids import (
    SEEDS,
    GptOssId,
    UsageEvent,
    likeliest,
    mean,
    parameters,
    prompt_json,
    read_format,
    read_page,
    stops,
    total,
)
from service.harmony.tokens import ENDS, FIRST_SPECIAL, LAST_LEGAL

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


class _SglangEvent(ServerEvent):
    """With --incremental-streaming-output, `output_ids` are those behind the last event's."""

    output_ids: list[GptOssId] = []
    meta_info: _Meta | None = None


class _Info(msgspec.Struct):
    model_type: str | None = None
    max_total_num_tokens: Count = 0


_SGLANG_EVENT, _INFO = msgspec.json.Decoder(_SglangEvent), msgspec.json.Decoder(_Info)
_ENCODE = msgspec.json.Encoder().encode


class Sglang(ServerKind):
    """SGLang's servers, and routers before some."""

    name = "SGLang"
    health = READY
    notices_hang_ups = False

    async def facts(self, ask: Ask, wanted: Wanted) -> ServerFacts:
        unsaid = EngineUnavailable("the SGLang server does not say what kind of model it has; is it one?")
        kind = decode(_INFO, await self.ask_body(ask, MODEL), unsaid).model_type
        if kind != MODEL_TYPE:
            raise EngineUnavailable(f"the SGLang server's model is of the type {kind!r}, and gpt-oss {MODEL_TYPE!r}")
        model, context_tokens, _ = await self.served_model(ask, wanted)
        return ServerFacts(GENERATE, model, context_tokens)

    async def load(self, ask: Ask) -> ServerLoad:
        answers = [await ask("GET", path, None) for path in (METRICS, INFO)]
        return await asyncio.to_thread(read_load, *(body if status == 200 else b"" for status, body in answers))

    def request(self, facts: ServerFacts, generation: Generation) -> Request:
        sampling, chance = generation.sampling, secrets.randbits(64)
        rid = f"{generation.id}-{chance:016x}"
        named = parameters(sampling) | stops(sampling)
        named |= {
            "max_new_tokens": named.pop("max_tokens"),
            "top_k": sampling.top_k or -1,
            "skip_special_tokens": False,
            "no_stop_trim": True,
            "stream_interval": 1,
            # a server that goes by seeds has the same one for all without
            "sampling_seed": (chance if sampling.seed is None else sampling.seed) % SEEDS,
        }
        if sampling.structural_tag is not None:
            read_format(sampling.structural_tag)  # one that is no JSON ends its scheduler
            named["structural_tag"] = sampling.structural_tag
        body: dict[str, Any] = {
            "rid": rid,
            "input_ids": prompt_json(generation, LAST_LEGAL),  # it would look others up outside of its table
            "stream": True,
            "priority": -generation.priority,  # higher ones are served earlier there
            "sampling_params": named,
            **_salts(generation.cache_salt),
        }
        if sampling.logprobs is not None:
            body |= {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": sampling.logprobs}
        return Request(GENERATE, _ENCODE(body), Request(ABORT, _ENCODE({"rid": rid})))

    def answer(self, generation: Generation) -> "SglangAnswer":
        return SglangAnswer(logprobs=generation.sampling.logprobs)

    def passed_members(self, passed: Passed) -> dict[str, Any]:
        return {**_salts(passed.cache_salt), "priority": -passed.priority} if passed.cache_salt else {}


def _salts(salt: str | None) -> dict[str, str]:
    """The members that keep cached prefixes apart. Older servers know the second name alone, and ignore the first."""
    return {"cache_salt": salt, "extra_key": salt} if salt else {}


def read_load(page: bytes, info: bytes) -> ServerLoad:
    """The load, from a page of metrics (there is one with --enable-metrics) and `/server_info`. Either may be empty."""
    try:
        room = _INFO.decode(info).max_total_num_tokens
    except UNREADABLE:
        room = 0
    found = read_page(page, (RUNNING, WAITING, USED))
    return ServerLoad(total(found[RUNNING]), total(found[WAITING]), min(mean(found[USED]), 1.0), room)


class SglangAnswer(Answer):
    """A stream."""

    name = "SGLang"
    _count = 0
    """How many ids were taken."""

    def _take(self, payload: bytes) -> None:
        event = read_event(self.name, _SGLANG_EVENT, payload)
        if self.finished:
            return
        if event.meta_info is None:
            raise EngineError("the SGLang server sent an event that doesn't say how many tokens there are")
        meta, reason = event.meta_info, event.meta_info.finish_reason
        if reason is not None and reason.type == "abort" and reason.status_code is not None and not self.ending:
            raise refusal(self.name, reason.status_code, reason.message)
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


COMPLETIONS = "/v1/completions"

REUSES = "reuses prompts"
"""The trait of a server that computes the beginning of a prompt once."""

PROBE_TOKENS = 300
"""The length of the prompt that is asked twice: more than two of the largest blocks."""

SWITCH_OFF = "start it with kv_cache_config: enable_block_reuse: false"


class _Choice(msgspec.Struct):
    token_ids: list[GptOssId] | None = None
    finish_reason: str | None = None


class _TensorrtEvent(UsageEvent):
    choices: list[_Choice] = []


_TENSORRT_EVENT = msgspec.json.Decoder(_TensorrtEvent)


class Tensorrt(ServerKind):
    """TensorRT-LLM's servers. `shared` is whether several tenants use them; where not, `salt` is that of the one."""

    name = "TensorRT-LLM"

    def __init__(self, *, shared: bool, salt: str | None = None) -> None:
        self._shared = shared
        self._salt = salt
        self._reuses = False
        """Whether one of them keeps cached prompts."""

    async def facts(self, ask: Ask, wanted: Wanted) -> ServerFacts:
        """The facts. Whether constraints are on it doesn't say."""
        reuses = await self._finds_prompts(ask, (await self.served_model(ask, wanted)).model)
        if reuses and self._shared:
            raise EngineUnavailable(
                f"the TensorRT-LLM server keeps cached prompts, and can't keep those of tenants apart; {SWITCH_OFF}"
            )
        self._reuses |= reuses
        traits = frozenset({REUSES} if reuses else ())
        model, context, _ = await self.served_model(ask, wanted)
        return ServerFacts(COMPLETIONS, model, context, traits=traits, logprobs=False, constrains=False)

    def request(self, facts: ServerFacts, generation: Generation) -> Request:
        self._refuse_salted(REUSES in facts.traits, generation.cache_salt)
        usage = {"include_usage": True, "continuous_usage_stats": True}
        members = _members(generation, facts.model) | {"stream": True, "stream_options": usage}
        return Request(COMPLETIONS, _ENCODE(members))

    def _refuse_salted(self, reuses: bool, salt: str | None) -> None:
        """Raise EngineRefused for a generation that must not be matched with the cache, where every one is."""
        if reuses and salt != self._salt:
            raise EngineRefused(f"the engine can't keep cached prompts apart: leave out cache_salt, or {SWITCH_OFF}")

    def answer(self, generation: Generation) -> "TensorrtAnswer":
        return TensorrtAnswer(logprobs=None)

    def passed_members(self, passed: Passed) -> dict[str, Any]:
        """Nothing, as it refuses unknown members, and its endpoints know different ones."""
        if passed.cache_salt:
            self._refuse_salted(self._reuses, passed.cache_salt)
        return {}

    async def _finds_prompts(self, ask: Ask, model: str) -> bool:
        """Whether a prompt that was computed is matched with what is cached; also where the server doesn't say.

        The probe uses every member that a server might not know. Raises EngineError where it refuses one.
        """
        prompt = [secrets.randbelow(FIRST_SPECIAL) for _ in range(PROBE_TOKENS)]
        body = _ENCODE(_members(Generation("", prompt, Sampling(1, 0, stop_ids=ENDS[:1])), model))
        other = EngineUnavailable("the TensorRT-LLM server does not answer a completion; is it one?")
        answers = [decode(_TENSORRT_EVENT, await self.ask_body(ask, COMPLETIONS, body), other) for _ in range(2)]
        if any(not answer.choices or not answer.choices[0].token_ids for answer in answers):
            raise EngineUnavailable("the TensorRT-LLM server gives no token ids; is it recent?")
        return answers[-1].cached_tokens != 0


def _members(generation: Generation, model: str) -> dict[str, Any]:
    """A request, streamed or not. Raises EngineRefused."""
    sampling = generation.sampling
    if sampling.logprobs is not None:
        raise EngineRefused(
            "the server is TensorRT-LLM's, which names tokens by their text in log probabilities; leave out "
            "top_logprobs, and message.output_text.logprobs in include"
        )
    members: dict[str, Any] = {
        "model": model,
        "prompt": prompt_json(generation, LAST_LEGAL),  # of others it would say that it is its own fault
        "detokenize": False,
        "add_special_tokens": False,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        **parameters(sampling),
        **stops(sampling),
    }
    if sampling.seed is not None:
        members["seed"] = sampling.seed % SEEDS
    if generation.priority:
        members["priority"] = priority(generation.priority)
    if sampling.structural_tag is not None:
        form = read_format(sampling.structural_tag)
        members["response_format"] = {"type": "structural_tag", "format": form}
    return members


def priority(ours: int) -> float:
    """A priority as TensorRT-LLM has it: from 0 to 1, which is served first, where 0.5 is the usual one."""
    return 0.5 - 0.5 * ours / (1 + abs(ours))


class TensorrtAnswer(Answer):
    """A stream."""

    name = "TensorRT-LLM"

    def _take(self, payload: bytes) -> None:
        event = read_event(self.name, _TENSORRT_EVENT, payload)
        if event.cached_tokens is not None:
            self._cached_tokens = event.cached_tokens
        for choice in event.choices:
            if self.finished:
                return
            if choice.token_ids is None:
                raise EngineError("the TensorRT-LLM server sent an event without token ids; is it recent?")
            self._tokens += choice.token_ids
            if choice.finish_reason is not None:
                self._finish_as("abort" if choice.finish_reason == "cancelled" else choice.finish_reason)
