"""What the conformance suite asks of an adapter's test module: the hooks, and what the adapter may lack.

Here too is how its tests ask an engine for something and wait. Never put a test here.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import pytest

from service.engine.port import Chunk, Engine, Finish, Generation, Sampling, TokenLogprobs
from service.harmony.tokens import STOPS
from tests.support.engine.generating import generated

Ability = Literal[
    "stop", "determinism", "large prompts", "close", "logprobs", "constraint", "prefix cache", "known limits"
]

LONG_TOKENS = 300
"""What `long_prompt` must be good for, so that a generation can be closed in its midst."""


@dataclass(frozen=True)
class Sampled:
    """A whole generation: its ids, its finish, and the chunks as they came."""

    tokens: list[int]
    finish: Finish | None
    chunks: list[Chunk]

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        """The log probabilities of all chunks."""
        return [each for chunk in self.chunks for each in chunk.logprobs or ()]

    @property
    def cached_tokens(self) -> int | None:
        """How much of the prompt was cached, as it was said last."""
        return next((chunk.cached_tokens for chunk in reversed(self.chunks) if chunk.cached_tokens is not None), None)


async def complete(engine: Engine, generation: Generation) -> Sampled:
    """Run a generation to its end."""
    chunks = [chunk async for chunk in generated(engine, generation)]
    tokens = [token for chunk in chunks for token in chunk.tokens]
    return Sampled(tokens, chunks[-1].finish if chunks else None, chunks)


async def sample(engine: Engine, prompt: Sequence[int], max_tokens: int, stop_ids: tuple[int, ...] = STOPS) -> Sampled:
    """Run one greedy generation to its end."""
    return await complete(engine, Generation("test", prompt, Sampling(max_tokens, 0, stop_ids=stop_ids)))


async def begin(engine: Engine, prompt: Sequence[int]) -> "asyncio.Task[Finish | None]":
    """A task that follows a long generation, which has sampled its first chunk, and results in its finish."""
    begun = asyncio.Event()

    async def follow() -> Finish | None:
        finish = None
        async for chunk in generated(engine, Generation("test", prompt, Sampling(2_000, 0, stop_ids=STOPS))):
            begun.set()
            finish = chunk.finish
        return finish

    consumer = asyncio.create_task(follow())
    waiting = asyncio.create_task(begun.wait())
    await asyncio.wait((consumer, waiting), return_when=asyncio.FIRST_COMPLETED)
    if not begun.is_set():
        waiting.cancel()
        await consumer  # raises what it failed with
        raise AssertionError("the generation was over before it began")
    return consumer


class EngineHooks(ABC):
    """The hooks. What is a ClassVar may be set otherwise, for a slow model say."""

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
