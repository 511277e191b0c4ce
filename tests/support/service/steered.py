"""Scripts of an engine whose responses are steered: one waits amid its answer, one notes what it hears."""

import asyncio
from collections.abc import Iterator

from service.engine.port import Generation
from service.harmony import tokens
from tests.support.engine.scripted import Stall, Step
from tests.support.responses.samples import MARKS
from tests.support.service.inside import answer

NAMES = {id: name for name, id in MARKS.items()}


def shown(prompt: list[int]) -> str:
    """A prompt, its marks among the text."""
    return "".join(NAMES[each] if each in NAMES else tokens.decode([each]) for each in prompt)


class Paused:
    """An engine's script that plays `before`, waits until it may go on, and plays `behind`."""

    def __init__(self, before: list[int], behind: list[int] | None = None) -> None:
        self.reached, self.on = asyncio.Event(), asyncio.Event()
        self.prompt: list[int] = []
        self._before, self._behind = before, behind

    def __call__(self, generation: Generation) -> Iterator[Step]:
        self.prompt = list(generation.prompt)
        yield self._before
        self.reached.set()
        yield Stall(self.on)
        if self._behind is not None:
            yield self._behind


class Answers:
    """An engine's script that answers each time in the same way, and notes what it was asked."""

    def __init__(self, ids: list[int] | None = None) -> None:
        self.prompts: list[list[int]] = []
        self.asked: list[Generation] = []
        self._ids = ids or answer("As you wish.")

    def __call__(self, generation: Generation) -> list[list[int]]:
        self.prompts.append(list(generation.prompt))
        self.asked.append(generation)
        return [self._ids]

    @property
    def text(self) -> str:
        return shown(self.prompts[-1])
