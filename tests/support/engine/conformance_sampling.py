"""How every engine samples when it is asked for more than tokens: constraints, log probabilities, caching, refusals.

A part of the conformance suite; see conformance.py.
"""

import json
import math
import re
import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from service.engine.port import EngineRefused, Finish, Generation, Sampling
from service.harmony.tokens import ASSISTANT, CHANNEL, END, LAST_LEGAL, MESSAGE, START, STOPS, decode, encode
from tests.support.engine.hooks import EngineHooks, Sampled, complete, sample
from tests.support.engine.watched import Engine

CACHED_PROMPT_TOKENS = 600
"""Several blocks of any engine's prefix cache."""


def greedy(max_tokens: int, **asked: Any) -> Sampling:
    return Sampling(max_tokens, 0, stop_ids=STOPS, **asked)


def tag(*elements: int | str) -> str:
    """A structural tag for these special tokens and, as text, regular expressions, one after the other."""
    sequence = [
        {"type": "token", "token": each} if isinstance(each, int) else {"type": "regex", "pattern": each}
        for each in elements
    ]
    return json.dumps({"type": "structural_tag", "format": {"type": "sequence", "elements": sequence}})


THOUGHT, ANSWER = "[a-z ]{1,30}", "(yes|no)"
ANALYSIS, FINAL = encode("analysis")[0], encode("final")[0]
YES_OR_NO = tag(*(CHANNEL, ANALYSIS, MESSAGE, THOUGHT, END), *(START, ASSISTANT, CHANNEL, FINAL, MESSAGE, ANSWER))


class SamplingConformance(EngineHooks):
    """The tests. Greedy wherever chance would say nothing."""

    @pytest.mark.parametrize("alternatives", [0, 3])
    async def test_log_probabilities_come_with_each_token(self, engine: Engine, alternatives: int) -> None:
        self.need("logprobs")
        sampled = await self._asked(engine, greedy(20, logprobs=alternatives))
        assert len(sampled.tokens) == 20
        for chunk in sampled.chunks:
            assert chunk.logprobs is not None
            assert len(chunk.logprobs) == len(chunk.tokens)
        for each in sampled.logprobs:
            for value in (each.logprob, *(value for _, value in each.top)):
                assert value <= 0
                assert math.isfinite(value)
            assert min(alternatives, 1) <= len(each.top) <= alternatives

    async def test_a_greedy_token_is_the_likeliest_of_its_alternatives(self, engine: Engine) -> None:
        self.need("logprobs")
        sampled = await self._asked(engine, greedy(20, logprobs=3))
        for token, each in zip(sampled.tokens, sampled.logprobs, strict=True):
            assert dict(each.top)[token] == each.logprob == max(value for _, value in each.top)

    async def test_one_seed_has_one_answer(self, engine: Engine) -> None:
        self.need("determinism")
        first, second = [
            await self._asked(engine, Sampling(20, temperature=1, stop_ids=STOPS, seed=7)) for _ in range(2)
        ]
        assert first.tokens == second.tokens

    async def test_every_sampling_parameter_is_taken(self, engine: Engine) -> None:
        sampling = Sampling(
            max_tokens=20, temperature=0.7, top_p=0.9, stop_ids=STOPS, top_k=5, min_p=0.05, presence_penalty=0.5,
            frequency_penalty=-0.5, repetition_penalty=1.1,
        )  # fmt: skip
        sampled = await self._asked(engine, sampling)
        assert sampled.tokens
        assert sampled.finish in (Finish.STOP, Finish.LENGTH)

    async def test_a_top_p_of_nothing_is_greedy(self, engine: Engine) -> None:
        self.need("determinism")
        sampled = await self._asked(engine, Sampling(20, temperature=1, top_p=0, stop_ids=STOPS))
        assert sampled.tokens == (await self._asked(engine, greedy(20))).tokens

    @pytest.mark.parametrize("priority", [-5, 5])
    async def test_a_priority_is_taken(self, engine: Engine, priority: int) -> None:
        sampled = await complete(engine, Generation("test", self.long_prompt(), greedy(5), priority=priority))
        assert len(sampled.tokens) == 5

    async def test_a_structural_tag_holds(self, engine: Engine) -> None:
        self.need("constraint")
        sampled = await self._asked(engine, greedy(100, structural_tag=YES_OR_NO))
        assert sampled.finish is Finish.STOP
        *said, stop = sampled.tokens
        assert stop in STOPS
        closed, reopened = said.index(END), said.index(ASSISTANT)
        assert said[:3] == [CHANNEL, ANALYSIS, MESSAGE]
        assert re.fullmatch(THOUGHT, decode(said[3:closed]))
        assert said[closed : reopened + 4] == [END, START, ASSISTANT, CHANNEL, FINAL, MESSAGE]
        assert re.fullmatch(ANSWER, decode(said[reopened + 4 :]))

    @pytest.mark.parametrize("malformed", ["{", "[]", '{"type":"structural_tag"}', tag("(")])
    async def test_a_malformed_structural_tag_is_refused(self, engine: Engine, malformed: str) -> None:
        await self._refused(engine, self.long_prompt(), greedy(20, structural_tag=malformed))

    async def test_an_id_that_is_no_token_is_refused(self, engine: Engine) -> None:
        self.need("known limits")
        await self._refused(engine, [*self.long_prompt(), LAST_LEGAL + 1], greedy(20))

    async def test_a_prompt_that_is_longer_than_the_context_is_refused(self, engine: Engine) -> None:
        self.need("known limits")
        await self._refused(engine, self._repeated(engine.model.context_tokens + 1), greedy(20))

    async def test_what_a_prompt_has_in_common_with_an_earlier_one_is_cached(self, engine: Engine) -> None:
        self.need("prefix cache")
        prompt, salt = self._never_seen(CACHED_PROMPT_TOKENS), uuid.uuid4().hex
        cached = [await self._cached(engine, prompt, salt) for _ in range(3)]
        assert cached[0] == 0
        assert 0 < cached[1] == cached[2] < len(prompt)
        changed = [*prompt[: cached[1]], START if prompt[cached[1]] == END else END, *reversed(prompt)]
        assert await self._cached(engine, changed, salt) == cached[1]

    async def test_prefixes_of_another_salt_are_as_if_never_seen(self, engine: Engine) -> None:
        self.need("prefix cache")
        prompt = self._never_seen(CACHED_PROMPT_TOKENS)
        cached = [await self._cached(engine, prompt, uuid.uuid4().hex) for _ in range(2)]
        assert cached == [0, 0]

    async def _asked(self, engine: Engine, sampling: Sampling) -> Sampled:
        return await complete(engine, Generation("test", self.long_prompt(), sampling))

    async def _cached(self, engine: Engine, prompt: Sequence[int], salt: str) -> int:
        """How much of the prompt the engine says that it had cached."""
        cached = (await complete(engine, Generation("test", prompt, greedy(1), cache_salt=salt))).cached_tokens
        assert cached is not None
        return cached

    async def _refused(self, engine: Engine, prompt: Sequence[int], sampling: Sampling) -> None:
        """Ask for what has to be refused; the engine must be as good as before."""
        with pytest.raises(EngineRefused) as refusal:
            await complete(engine, Generation("test", prompt, sampling))
        assert refusal.value.status == 400
        assert str(refusal.value)
        assert engine.running == 0
        assert len((await sample(engine, self.long_prompt(), 5)).tokens) == 5

    def _never_seen(self, length: int) -> list[int]:
        """A prompt of so many tokens that begins as none did before."""
        return [*encode(uuid.uuid4().hex), *self._repeated(length)][:length]

    def _repeated(self, length: int) -> list[int]:
        """A prompt of so many tokens; what it says is nothing to the test."""
        prompt = list(self.long_prompt())
        return (prompt * (length // len(prompt) + 1))[:length]
