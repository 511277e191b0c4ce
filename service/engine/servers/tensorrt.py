"""TensorRT-LLM's `trtllm-serve`, as read in its source of 2026: `/v1/completions` takes token ids, and gives token ids
where no text is asked for. It refuses unknown keys, so newer keys are sent only where they are needed.

It has no salts that keep tenants' cached prompts apart. So a server that has cached prompts is for one tenant alone,
and for requests without a salt of their own: a probe asks the same thing twice to see whether it has.

Experimental: no real server has met this; tests hold it against a stand-in alone.
"""

import secrets
from typing import Any

import msgspec

from service.engine.pass_through import Passed
from service.engine.port import EngineError, EngineRefused, EngineUnavailable, Generation, Sampling
from service.engine.servers.answer import Answer
from service.engine.servers.kind import Ask, Facts, Kind, Request, Wanted, decoded, read_event
from service.engine.servers.token_ids import (
    SEEDS,
    GptOssId,
    UsageEvent,
    parameters,
    prompt_json,
    read_format,
    stops,
)
from service.harmony.tokens import ENDS, FIRST_SPECIAL, LAST_LEGAL

NAME = "TensorRT-LLM"
COMPLETIONS = "/v1/completions"

REUSES = "reuses prompts"
"""The trait of a server that computes the beginning of a prompt once."""

PROBE_TOKENS = 300
"""The length of the prompt that is asked twice: more than two of the largest blocks."""

SWITCH_OFF = "start it with kv_cache_config: enable_block_reuse: false"


class _Choice(msgspec.Struct):
    token_ids: list[GptOssId] | None = None
    finish_reason: str | None = None


class _Event(UsageEvent):
    choices: list[_Choice] = []


_EVENT = msgspec.json.Decoder(_Event)
_ENCODE = msgspec.json.Encoder().encode


class Tensorrt(Kind):
    """TensorRT-LLM's servers. `shared` is whether several tenants use them; where not, `salt` is that of the one."""

    name = NAME

    def __init__(self, *, shared: bool, salt: str | None = None) -> None:
        self._shared = shared
        self._salt = salt
        self._reuses = False
        """Whether one of them keeps cached prompts."""

    async def facts(self, ask: Ask, wanted: Wanted) -> Facts:
        """The facts. Whether constraints are on it doesn't say."""
        reuses = await self._finds_prompts(ask, (await self.served(ask, wanted)).model)
        if reuses and self._shared:
            raise EngineUnavailable(
                f"the TensorRT-LLM server keeps cached prompts, and can't keep those of tenants apart; {SWITCH_OFF}"
            )
        self._reuses |= reuses
        traits = frozenset({REUSES} if reuses else ())
        model, context, _ = await self.served(ask, wanted)
        return Facts(COMPLETIONS, model, context, traits=traits, logprobs=False, constrains=False)

    def request(self, facts: Facts, generation: Generation) -> Request:
        self._refuse_salted(REUSES in facts.traits, generation.cache_salt)
        return Request(COMPLETIONS, request_body(generation, facts.model))

    def _refuse_salted(self, reuses: bool, salt: str | None) -> None:
        """Raise EngineRefused for a generation that must not be matched with the cache, where every one is."""
        if reuses and salt != self._salt:
            raise EngineRefused(f"the engine can't keep cached prompts apart: leave out cache_salt, or {SWITCH_OFF}")

    def answer(self, generation: Generation) -> "TensorrtAnswer":
        return TensorrtAnswer(logprobs=None)

    def passed(self, passed: Passed) -> dict[str, Any]:
        """Nothing, as it refuses unknown members, and its endpoints know different ones."""
        self._refuse_salted(self._reuses, passed.cache_salt)
        return {}

    async def _finds_prompts(self, ask: Ask, model: str) -> bool:
        """Whether a prompt that was computed is matched with what is cached; also where the server doesn't say.

        The probe uses every member that a server might not know. Raises EngineError where it refuses one.
        """
        prompt = [secrets.randbelow(FIRST_SPECIAL) for _ in range(PROBE_TOKENS)]
        body = _ENCODE(_members(Generation("", prompt, Sampling(1, 0, stop_ids=ENDS[:1])), model))
        other = EngineUnavailable("the TensorRT-LLM server does not answer a completion; is it one?")
        answers = [decoded(_EVENT, await self.asked(ask, COMPLETIONS, body), other) for _ in range(2)]
        if any(not answer.choices or not answer.choices[0].token_ids for answer in answers):
            raise EngineUnavailable("the TensorRT-LLM server gives no token ids; is it recent?")
        return answers[-1].cached_tokens != 0


def request_body(generation: Generation, model: str) -> bytes:
    """The body that asks for a generation. Raises EngineRefused."""
    usage = {"include_usage": True, "continuous_usage_stats": True}
    return _ENCODE(_members(generation, model) | {"stream": True, "stream_options": usage})


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

    name = NAME

    def _take(self, payload: bytes) -> None:
        event = read_event(NAME, _EVENT, payload)
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
