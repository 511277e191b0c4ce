"""What every engine must do: one suite that runs against each adapter of service/engine/port.py.

An adapter's test module subclasses EngineConformance, gives the `engine` fixture (started; the fixture closes it) and
the hooks, which say what to ask of its model: a real one won't count to a thousand because a test would like it to.
What an adapter can't do stands in `lacks`, with the reason, and shows as a skip with that reason. Never weaken a test
here for the sake of one adapter.
"""

import asyncio
import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from service.engine.port import Chunk, Engine, EngineError, EngineUnavailable, Finish, Generation, Sampling
from service.protocol.tokens import LAST_LEGAL, STOPS

Ability = Literal["stop", "determinism", "large prompts", "close"]

POLL_S = 0.005
"""How often a condition is looked at that nothing announces."""

LONG_TOKENS = 300
"""What `long_prompt` must be good for, so that a generation can be closed in its midst."""


@dataclass(frozen=True)
class Sampled:
    """A whole generation: its ids, its finish, and the chunks as they came."""

    tokens: list[int]
    finish: Finish | None
    chunks: list[Chunk]


async def sample(engine: Engine, prompt: Sequence[int], max_tokens: int, stop_ids: tuple[int, ...] = STOPS) -> Sampled:
    """Run one greedy generation to its end."""
    request = Generation("test", prompt, Sampling(max_tokens, 0, stop_ids=stop_ids))
    chunks = [chunk async for chunk in engine.generate(request)]
    tokens = [token for chunk in chunks for token in chunk.tokens]
    return Sampled(tokens, chunks[-1].finish if chunks else None, chunks)


async def begin(engine: Engine, prompt: Sequence[int]) -> "asyncio.Task[Finish | None]":
    """A task that follows a long generation, which has sampled its first chunk, and results in its finish."""
    begun = asyncio.Event()

    async def follow() -> Finish | None:
        finish = None
        async for chunk in engine.generate(Generation("test", prompt, Sampling(10_000, 0, stop_ids=STOPS))):
            begun.set()
            finish = chunk.finish
        return finish

    consumer = asyncio.create_task(follow())
    await begun.wait()
    return consumer


async def eventually(condition: Callable[[], bool], deadline_s: float) -> None:
    """Wait until `condition` holds, or fail."""
    for _ in range(round(deadline_s / POLL_S)):
        if condition():
            return
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"the condition did not come true within {deadline_s} s")


class EngineConformance(ABC):
    """The suite. Subclasses are named Test…, give `engine` and the hooks, and may widen the limits for a slow model."""

    lacks: ClassVar[dict[Ability, str]] = {}
    deadline_s: ClassVar[float] = 5
    stop_tokens: ClassVar[int] = 500
    longest_block_s: ClassVar[float] = 0.25

    @abstractmethod
    def stopping_prompt(self) -> Sequence[int]:
        """A prompt whose answer ends with a stop id within `stop_tokens` tokens."""

    @abstractmethod
    def long_prompt(self) -> Sequence[int]:
        """A prompt whose answer has more than LONG_TOKENS tokens."""

    @abstractmethod
    def other_long_prompt(self) -> Sequence[int]:
        """Another such prompt, with a different answer."""

    @abstractmethod
    def large_prompt(self) -> Sequence[int]:
        """A prompt of nearly the model's context (at most 120,000 tokens), with room for 16 more."""

    def need(self, ability: Ability) -> None:
        """Skip the test, saying why, where the adapter declares that it lacks the ability."""
        if ability in self.lacks:
            pytest.skip(f"{type(self).__name__} lacks {ability!r}: {self.lacks[ability]}")

    async def test_the_model_card_is_sane(self, engine: Engine) -> None:
        assert engine.model.id
        assert engine.model.created >= 0
        assert engine.model.context_tokens >= 1024

    async def test_a_ready_engine_passes_its_check_and_runs_nothing(self, engine: Engine) -> None:
        await engine.check()
        assert engine.running == 0

    async def test_a_stop_id_is_the_last_token_of_a_stop(self, engine: Engine) -> None:
        self.need("stop")
        sampled = await sample(engine, self.stopping_prompt(), self.stop_tokens)
        assert sampled.finish is Finish.STOP
        assert sampled.tokens[-1] in STOPS
        assert not set(STOPS) & set(sampled.tokens[:-1])

    async def test_a_stop_id_of_the_caller_ends_a_generation_too(self, engine: Engine) -> None:
        self.need("determinism")
        free = await sample(engine, self.long_prompt(), 40)
        wanted = free.tokens[20]
        sampled = await sample(engine, self.long_prompt(), 40, stop_ids=(*STOPS, wanted))
        assert sampled.finish is Finish.STOP
        assert sampled.tokens == free.tokens[: free.tokens.index(wanted) + 1]

    @pytest.mark.parametrize("max_tokens", [1, 2, 7, 64, 65, 200])
    async def test_max_tokens_is_exact(self, engine: Engine, max_tokens: int) -> None:
        sampled = await sample(engine, self.long_prompt(), max_tokens)
        assert len(sampled.tokens) == max_tokens
        assert sampled.finish is Finish.LENGTH

    async def test_a_finish_comes_once_and_last(self, engine: Engine) -> None:
        for prompt in (self.stopping_prompt(), self.long_prompt()):
            sampled = await sample(engine, prompt, 100)
            assert not any(chunk.finish for chunk in sampled.chunks[:-1])
            assert sampled.finish in (Finish.STOP, Finish.LENGTH)

    async def test_every_sampled_token_is_a_legal_id(self, engine: Engine) -> None:
        sampled = await sample(engine, self.long_prompt(), LONG_TOKENS)
        assert all(0 <= token <= LAST_LEGAL for token in sampled.tokens)

    async def test_one_prompt_has_one_answer_at_temperature_zero(self, engine: Engine) -> None:
        self.need("determinism")
        first, second = [await sample(engine, self.long_prompt(), 100) for _ in range(2)]
        assert first.tokens == second.tokens

    async def test_two_generations_at_once_do_not_mix(self, engine: Engine) -> None:
        self.need("determinism")
        prompts = [self.long_prompt(), self.other_long_prompt()] * 4
        together = await asyncio.gather(*(sample(engine, prompt, 100) for prompt in prompts))
        alone = [await sample(engine, prompt, 100) for prompt in prompts[:2]]
        assert [s.tokens for s in together] == [s.tokens for s in alone] * 4
        assert alone[0].tokens != alone[1].tokens

    async def test_a_generation_counts_as_running_from_its_first_chunk_to_its_end(self, engine: Engine) -> None:
        generator = engine.generate(Generation("test", self.long_prompt(), Sampling(LONG_TOKENS, 0, stop_ids=STOPS)))
        await anext(generator)
        assert engine.running == 1
        assert [chunk async for chunk in generator][-1].finish
        await eventually(lambda: engine.running == 0, self.deadline_s)

    async def test_closing_the_generator_aborts_at_once(self, engine: Engine) -> None:
        generator = engine.generate(Generation("test", self.long_prompt(), Sampling(10_000, 0, stop_ids=STOPS)))
        await anext(generator)
        async with asyncio.timeout(self.deadline_s):
            await generator.aclose()
        await eventually(lambda: engine.running == 0, self.deadline_s)
        with pytest.raises(StopAsyncIteration):
            await anext(generator)

    async def test_cancelling_the_consumer_aborts_its_generation(self, engine: Engine) -> None:
        consumer = await begin(engine, self.long_prompt())
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        await eventually(lambda: engine.running == 0, self.deadline_s)

    async def test_a_generator_that_nobody_holds_any_more_is_aborted(self, engine: Engine) -> None:
        generator = engine.generate(Generation("test", self.long_prompt(), Sampling(10_000, 0, stop_ids=STOPS)))
        await anext(generator)
        del generator
        gc.collect()
        await eventually(lambda: engine.running == 0, self.deadline_s)

    async def test_aborting_one_generation_leaves_the_others_alone(self, engine: Engine) -> None:
        self.need("determinism")
        doomed = engine.generate(Generation("test", self.long_prompt(), Sampling(10_000, 0, stop_ids=STOPS)))
        await anext(doomed)
        other = asyncio.create_task(sample(engine, self.other_long_prompt(), 100))
        await doomed.aclose()
        alone = await sample(engine, self.other_long_prompt(), 100)
        assert (await other).tokens == alone.tokens

    async def test_a_large_prompt_is_served_while_others_get_their_turn(self, engine: Engine) -> None:
        self.need("large prompts")
        prompt, gaps = self.large_prompt(), [0.0]
        ticking = asyncio.create_task(_tick(gaps))
        sampled = await sample(engine, prompt, 16)
        ticking.cancel()
        assert sampled.tokens
        assert max(gaps) < self.longest_block_s

    async def test_a_closed_engine_fails_its_check_and_refuses_work(self, engine: Engine) -> None:
        await engine.close()
        with pytest.raises(EngineUnavailable):
            await engine.check()
        with pytest.raises(EngineUnavailable):
            await sample(engine, self.stopping_prompt(), 10)
        assert engine.running == 0

    async def test_closing_the_engine_ends_what_is_running(self, engine: Engine) -> None:
        self.need("close")
        consumer = await begin(engine, self.long_prompt())
        await engine.close()
        async with asyncio.timeout(self.deadline_s):
            (ended,) = await asyncio.gather(consumer, return_exceptions=True)
        assert isinstance(ended, EngineError) or ended is Finish.ABORT
        await eventually(lambda: engine.running == 0, self.deadline_s)


async def _tick(gaps: list[float]) -> None:
    """Note how long each turn of the loop took."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    while True:
        await asyncio.sleep(0)
        now = loop.time()
        gaps.append(now - before)
        before = now
