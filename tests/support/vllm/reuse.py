"""How much of each prompt an engine needn't read again, of what it could have kept.

What could be kept is the longest prefix that a prompt has in common with the prompt before it and what was sampled
then; what was, the server says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from service.engine.port import Between, Chunk, Generation, Take
from service.engine.servers.engine import Access, ServersEngine
from service.engine.servers.kind import ServerKind
from service.harmony.tokens import CALL


@dataclass(frozen=True)
class Step:
    """One generation: its prompt, what was sampled, and how much of the prompt the server says it had cached."""

    prompt: list[int]
    sampled: list[int]
    cached: int


class Recorder(ServersEngine):
    """An engine that notes what it is asked and answers."""

    def __init__(self, kind: ServerKind, access: Access) -> None:
        super().__init__(kind, access)
        self.steps: list[Step] = []

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
            await super().sample(generation, noted, between)
        finally:  # behind a call nobody waits for the finish; what is broken off before its end is asked for again
            if cached is not None and (finished or CALL in sampled):
                self.steps.append(Step(list(generation.prompt), sampled, cached))


def reuse(steps: Sequence[Step], block: int) -> tuple[int, int]:
    """How many tokens served again, and could have, where `block` of them are cached together or not at all."""
    most = [
        shared([*before.prompt, *before.sampled], after.prompt) // block * block for before, after in pairwise(steps)
    ]
    return sum(min(step.cached, tokens) for step, tokens in zip(steps[1:], most, strict=True)), sum(most)


def shared(before: Sequence[int], after: Sequence[int]) -> int:
    """How many tokens two sequences have in common from their beginning on."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(before), len(after)))
