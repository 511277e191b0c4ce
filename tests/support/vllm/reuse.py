"""How much of each prompt an engine needn't read again, of what it could have kept.

What could be kept is the longest prefix that a prompt has in common with the prompt before it and what was sampled
then; what was, the server says.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.port import Between, Chunk, Engine, Generation, ModelCard, Renderer, Take
from service.harmony.tokens import CALL
from service.markup.speech import Transcript


@dataclass(frozen=True)
class Step:
    """One generation: its prompt, what was sampled, and how much of the prompt the server says it had cached."""

    prompt: list[int]
    sampled: list[int]
    cached: int


class Recorder:
    """An engine that notes what another one is asked and answers."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.steps: list[Step] = []

    @property
    def model(self) -> ModelCard:
        return self._engine.model

    def servers(self) -> dict[str, bool]:
        return dict(self._engine.servers())

    async def start(self) -> None:
        await self._engine.start()

    async def check(self) -> None:
        await self._engine.check()

    async def render(self, transcript: Transcript, model: str) -> Sequence[int]:
        assert isinstance(self._engine, Renderer)
        return await self._engine.render(transcript, model)

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        sampled: list[int] = []
        cached: int | None = None
        finished = False

        def noted(chunk: Chunk) -> bool:
            nonlocal cached, finished
            sampled.extend(chunk.tokens)
            cached = cached if chunk.cached_tokens is None else chunk.cached_tokens
            finished = chunk.finish is not None
            return take(chunk)

        try:
            await self._engine.sample(generation, noted, between)
        finally:  # behind a call nobody waits for the finish; what is broken off before its end is asked for again
            if cached is not None and (finished or CALL in sampled):
                self.steps.append(Step(list(generation.prompt), sampled, cached))

    async def finish(self, id: str) -> bool:
        return await self._engine.finish(id)

    async def close(self) -> None:
        await self._engine.close()


@dataclass(frozen=True)
class Reuse:
    """Tokens of all prompts but the first, summed up: what was there before each, and what of it served again."""

    previous: int
    common: int
    whole_blocks: int
    cached: int


def reuse(steps: Sequence[Step], block: int) -> Reuse:
    """What served again, where `block` tokens are cached together or not at all."""
    before = [[*step.prompt, *step.sampled] for step in steps]
    common = [shared(tokens, after.prompt) for tokens, after in zip(before, steps[1:], strict=False)]
    whole = [tokens // block * block for tokens in common]
    cached = [min(step.cached, most) for step, most in zip(steps[1:], whole, strict=True)]
    return Reuse(sum(map(len, before[:-1])), sum(common), sum(whole), sum(cached))


def shared(before: Sequence[int], after: Sequence[int]) -> int:
    """How many tokens two sequences have in common from their beginning on."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(before), len(after)))
