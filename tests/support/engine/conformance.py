"""What every engine must do: one suite that runs against each adapter of service/engine/port.py.

An adapter's test module subclasses EngineConformance, gives the `engine` fixture (started; the fixture closes it) and
the hooks (hooks.py), which say what to ask of its model: a real one won't count to a thousand because a test would like
it to. What an adapter can't do stands in `lacks`, with the reason, and shows as a skip with that reason. Never weaken a
test here for the sake of one adapter.
"""

import asyncio
from contextlib import aclosing

import pytest

from service.engine.port import EngineError, EngineUnavailable, Finish, Generation, Sampling
from service.harmony.tokens import STOPS
from tests.support.engine.conformance_sampling import SamplingConformance
from tests.support.engine.generating import generated
from tests.support.engine.hooks import LONG_TOKENS, Ability, Sampled, begin, complete, sample
from tests.support.engine.watched import Engine
from tests.support.waiting import until

__all__ = ["LONG_TOKENS", "Ability", "EngineConformance", "Sampled", "begin", "sample"]


class EngineConformance(SamplingConformance):
    """The suite. Subclasses are named Test…, give `engine` and the hooks, and may widen the limits for a slow model."""

    async def test_all_that_samples_is_up_until_it_is_closed(self, engine: Engine) -> None:
        assert len(engine.servers()) >= 1
        assert all(engine.servers().values())
        await engine.close()
        assert not any(engine.servers().values())

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

    async def test_nothing_but_its_stop_ids_ends_a_generation(self, engine: Engine) -> None:
        self.need("stop")
        sampled = await sample(engine, self.stopping_prompt(), self.stop_tokens, stop_ids=())
        assert sampled.finish is Finish.LENGTH
        assert len(sampled.tokens) == self.stop_tokens

    async def test_a_generation_that_is_to_finish_says_so_and_ends(self, engine: Engine) -> None:
        assert not await engine.finish("nobody")
        chunks = generated(engine, Generation("to-finish", self.long_prompt(), Sampling(LONG_TOKENS, temperature=0)))
        async with aclosing(chunks):
            await anext(chunks)
            heard = await engine.finish("to-finish")
            rest = [chunk async for chunk in chunks] if heard else []
        assert not await engine.finish("to-finish")
        assert engine.running == 0
        if heard:
            assert (rest[-1].finish, rest[-1].cached_tokens is None) == (Finish.ABORT, False)
            assert sum(len(chunk.tokens) for chunk in rest) < LONG_TOKENS / 2

    async def test_none_of_its_first_tokens_ends_a_generation(self, engine: Engine) -> None:
        self.need("stop")
        least = self.stop_tokens
        asked = Sampling(least, temperature=0, stop_ids=STOPS, min_tokens=least)
        sampled = await complete(engine, Generation("test", self.stopping_prompt(), asked))
        assert (sampled.finish, len(sampled.tokens)) == (Finish.LENGTH, least)
        assert not set(STOPS) & set(sampled.tokens)

    @pytest.mark.parametrize("max_tokens", [1, 2, 7, 64, 65, 200])
    async def test_max_tokens_is_exact(self, engine: Engine, max_tokens: int) -> None:
        sampled = await sample(engine, self.long_prompt(), max_tokens)
        assert len(sampled.tokens) == max_tokens
        assert sampled.finish is Finish.LENGTH

    async def test_two_generations_at_once_do_not_mix(self, engine: Engine) -> None:
        self.need("determinism")
        prompts = [self.long_prompt(), self.other_long_prompt()] * 4
        together = await asyncio.gather(*(sample(engine, prompt, 100) for prompt in prompts))
        alone = [await sample(engine, prompt, 100) for prompt in prompts[:2]]
        assert [s.tokens for s in together] == [s.tokens for s in alone] * 4
        assert alone[0].tokens != alone[1].tokens

    async def test_a_generation_counts_as_running_from_its_first_chunk_to_its_end(self, engine: Engine) -> None:
        generator = generated(engine, Generation("test", self.long_prompt(), Sampling(LONG_TOKENS, 0, stop_ids=STOPS)))
        await anext(generator)
        assert engine.running == 1
        assert [chunk async for chunk in generator][-1].finish
        await until(lambda: engine.running == 0, self.deadline_s)

    async def test_closing_the_generator_aborts_at_once(self, engine: Engine) -> None:
        generator = generated(engine, Generation("test", self.long_prompt(), Sampling(2_000, 0, stop_ids=STOPS)))
        await anext(generator)
        async with asyncio.timeout(self.deadline_s):
            await generator.aclose()
        await until(lambda: engine.running == 0, self.deadline_s)
        with pytest.raises(StopAsyncIteration):
            await anext(generator)

    async def test_cancelling_the_consumer_aborts_its_generation(self, engine: Engine) -> None:
        consumer = await begin(engine, self.long_prompt())
        consumer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await consumer
        await until(lambda: engine.running == 0, self.deadline_s)

    async def test_a_large_prompt_is_served_while_others_get_their_turn(self, engine: Engine) -> None:
        """What blocks the loop does so each time; a busy machine takes the processor away only now and then."""
        self.need("large prompts")
        longest = [await self._longest_turn(engine)]
        while longest[-1] >= self.longest_block_s and len(longest) < 3:
            longest.append(await self._longest_turn(engine))
        assert min(longest) < self.longest_block_s

    async def _longest_turn(self, engine: Engine) -> float:
        """For how long nobody else had a turn, in seconds, while a large prompt was served."""
        prompt, gaps = self.large_prompt(), [0.0]
        ticking = asyncio.create_task(_tick(gaps))
        sampled = await sample(engine, prompt, 16)
        ticking.cancel()
        assert sampled.tokens
        return max(gaps)

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
        await until(lambda: engine.running == 0, self.deadline_s)


async def _tick(gaps: list[float]) -> None:
    """Note how long each turn of the loop took."""
    loop = asyncio.get_running_loop()
    before = loop.time()
    while True:
        await asyncio.sleep(0)
        now = loop.time()
        gaps.append(now - before)
        before = now
