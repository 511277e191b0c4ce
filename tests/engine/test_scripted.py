"""The scripted engine: the conformance suite with a sensible script, and how a script is gone on with."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import ClassVar

import pytest

from service.engine.port import (
    Chunk,
    Finish,
    Generation,
    ModelCard,
    Sampling,
)
from service.harmony.tokens import CALL, MESSAGE, RETURN, STOPS
from tests.support.engine.conformance import Ability, EngineConformance
from tests.support.engine.generating import generated
from tests.support.engine.scripted import FinishWith, Script, ScriptedEngine

MODEL = ModelCard("scripted", 1_700_000_000, 131_072)


PROMPT = [1, 2, 3]
TAG = '{"type":"structural_tag","format":{"type":"any_text"}}'


def generation(id: str = "one", max_tokens: int = 100) -> Generation:
    return Generation(id, PROMPT, Sampling(max_tokens, stop_ids=STOPS))


def on(*heard: int, tag: str | None = TAG, stop_ids: tuple[int, ...] = STOPS) -> Generation:
    """A call that goes on behind these ids."""
    return Generation("next", [*PROMPT, *heard], Sampling(100, stop_ids=stop_ids, structural_tag=tag))


async def break_off(engine: ScriptedEngine) -> None:
    """Listen to the first chunk alone."""
    async with aclosing(generated(engine, generation())) as chunks:
        await anext(chunks)


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


@pytest.mark.parametrize(
    "script", [[[5, MESSAGE, 6, RETURN]], [[5, MESSAGE], [6, RETURN]], [[5, MESSAGE, 6], [RETURN]]]
)
async def test_who_breaks_off_behind_a_header_hears_the_rest_under_a_tag(script: Script) -> None:
    engine = ScriptedEngine(MODEL, script, [[9]])
    await break_off(engine)
    assert await heard(engine, on(5, MESSAGE)) == [6, RETURN]
    assert await heard(engine, on(5, MESSAGE)) == [9]


@pytest.mark.parametrize("again", [on(5, MESSAGE, tag=None), on(5), on(), on(5, MESSAGE, 6, 7), on(6, MESSAGE)])
async def test_what_is_no_constraint_of_the_script_gets_the_next_script(again: Generation) -> None:
    engine = ScriptedEngine(MODEL, [[5, MESSAGE, 6, RETURN]], [[9]])
    await break_off(engine)
    assert await heard(engine, again) == [9]


async def test_behind_a_stop_id_the_rest_of_the_script_is_played() -> None:
    engine = ScriptedEngine(MODEL, [[5, CALL, 6], [CALL], FinishWith(Finish.STOP, 3)], [[9]])
    assert await heard(engine, generation()) == [5, CALL]
    assert await heard(engine, on(5, CALL, tag=None)) == [6, CALL]
    last = await play(engine, on(5, CALL, 6, CALL, tag=None))
    assert last == [Chunk([], Finish.STOP, 3)]
    assert await heard(engine, on(5, CALL, 6, CALL, tag=None)) == [9]
