"""The scripted engine: the conformance suite with a sensible script, and how a script is gone on with."""

from collections.abc import AsyncGenerator, Sequence
from typing import ClassVar

import pytest

from service.engine.port import (
    Chunk,
    Generation,
    ModelCard,
    Sampling,
)
from service.harmony.tokens import RETURN, STOPS
from tests.support.engine.conformance import Ability, EngineConformance
from tests.support.engine.generating import generated
from tests.support.engine.scripted import Script, ScriptedEngine

MODEL = ModelCard("scripted", 1_700_000_000, 131_072)


PROMPT = [1, 2, 3]
TAG = '{"type":"structural_tag","format":{"type":"any_text"}}'


def on(*heard: int, tag: str | None = TAG, stop_ids: tuple[int, ...] = STOPS) -> Generation:
    """A call that goes on behind these ids."""
    return Generation("next", [*PROMPT, *heard], Sampling(100, stop_ids=stop_ids, structural_tag=tag))


async def heard(engine: ScriptedEngine, request: Generation) -> list[int]:
    """All the ids of a call."""
    return [token for chunk in await play(engine, request) for token in chunk.tokens]


async def play(engine: ScriptedEngine, request: Generation) -> list[Chunk]:
    return [chunk async for chunk in generated(engine, request)]


class TestConformance(EngineConformance):
    """The script counts upwards from the prompt's last id, a hundred chunks of seven; an odd one
    gives a stop id at once."""

    lacks: ClassVar[dict[Ability, str]] = {
        "constraint": "a script is played as it stands",
        "prefix cache": "it does nothing with a prompt that could be kept",
        "known limits": "a script may be played for any prompt",
    }

    @pytest.fixture
    async def engine(self) -> AsyncGenerator[ScriptedEngine, None]:
        engine = ScriptedEngine(MODEL, self._script)
        await engine.start()
        yield engine
        await engine.close()

    def stopping_prompt(self) -> Sequence[int]:
        return [1]

    def long_prompt(self) -> Sequence[int]:
        return [1000]

    def other_long_prompt(self) -> Sequence[int]:
        return [2000]

    def large_prompt(self) -> Sequence[int]:
        return [1000] * 120_000

    @staticmethod
    def _script(request: Generation) -> Script:
        first = request.prompt[-1]
        if first % 2:
            return [[5, 6], [7, RETURN], *([range(7)] * 100)]
        return [range(first + 7 * number, first + 7 * number + 7) for number in range(100)]
