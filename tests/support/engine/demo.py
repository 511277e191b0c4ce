"""The demo engine, watched, and its answers taken apart."""

from collections.abc import Sequence
from dataclasses import dataclass

from service.engine.port import Between, Generation, Take
from service.features.demo.engine import DemoEngine
from service.features.demo.sampling import sampled_answer
from service.harmony.tokens import ASSISTANT, CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START, decode


class WatchedDemo(DemoEngine):
    """The demo engine; a generation is under way until its generator has let go of everything."""

    running = 0

    async def sample(self, generation: Generation, take: Take, between: Between) -> None:
        self.running += 1
        try:
            await super().sample(generation, take, between)
        finally:
            self.running -= 1


@dataclass(frozen=True)
class Answer:
    """The ids that were sampled, and their texts by channel."""

    tokens: list[int]
    analysis: str = ""
    final: str = ""


def answer(tokens_before: Sequence[int]) -> Answer:
    """Let the demo engine's mind answer a prompt, and take the answer apart by its special tokens."""
    tokens = [token for piece in sampled_answer(tokens_before) for token in piece]
    places = [(part, part.index(MESSAGE)) for part in _split(tokens)]
    return Answer(tokens, **{decode(part[:place]): decode(part[place + 1 :]) for part, place in places})


def _split(tokens: list[int]) -> list[list[int]]:
    """The messages of an answer, from behind CHANNEL to before the token that closes each."""
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token in (END, RETURN, CALL):
            parts.append([])
        elif token not in (START, ASSISTANT, CHANNEL, CONSTRAIN):
            parts[-1].append(token)
    return parts[:-1]
