"""The scripted engine: the conformance suite with a sensible script, and each fault once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import ClassVar

import pytest

from service.engine.port import (
    Chunk,
    EngineError,
    EngineOverloaded,
    EngineUnavailable,
    Finish,
    Generation,
    ModelCard,
    Sampling,
)
from service.harmony.tokens import CALL, END, MESSAGE, RETURN, STOPS
from tests.support.engine.conformance import Ability, EngineConformance
from tests.support.engine.generating import generated
from tests.support.engine.scripted import (
    Die,
    EndWithoutFinish,
    FinishWith,
    Script,
    ScriptedEngine,
    Stall,
)
from tests.support.waiting import until

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


async def test_malformed_tokens_are_sampled_as_they_stand() -> None:
    engine = ScriptedEngine(MODEL, [[-1, 999_999], [200_008, 200_008]])
    chunks = await play(engine, generation())
    assert [chunk.tokens for chunk in chunks] == [[-1, 999_999], [200_008, 200_008], []]
    assert chunks[-1].finish is Finish.STOP


async def test_successive_calls_play_successive_scripts_and_then_the_last_again() -> None:
    engine = ScriptedEngine(MODEL, [[1, RETURN]], [[2, RETURN]])
    played = [await play(engine, generation(str(number))) for number in range(3)]
    assert [chunks[0].tokens[0] for chunks in played] == [1, 2, 2]
    assert [one.id for one in engine.generations] == ["0", "1", "2"]


async def test_a_stall_lasts_until_its_event() -> None:
    event = asyncio.Event()
    engine = ScriptedEngine(MODEL, [[1], Stall(event), [RETURN]])
    generator = generated(engine, generation())
    await anext(generator)
    rest = asyncio.ensure_future(anext(generator))
    await asyncio.sleep(0)
    assert not rest.done()
    event.set()
    assert (await rest).tokens == [RETURN]
    await generator.aclose()


async def test_an_abort_in_a_stall_is_noted_with_its_time() -> None:
    engine = ScriptedEngine(MODEL, [[1], Stall()])
    consumer = asyncio.create_task(play(engine, generation("stalled")))
    await until(lambda: engine.running == 1, 5)
    asked = asyncio.get_running_loop().time()
    consumer.cancel()
    await until(lambda: "stalled" in engine.aborted, 5)
    assert 0 <= engine.aborted["stalled"] - asked < 5
    assert engine.running == 0


async def test_closing_the_engine_ends_a_stall() -> None:
    engine = ScriptedEngine(MODEL, [Stall()])
    consumer = asyncio.create_task(play(engine, generation()))
    await until(lambda: engine.running == 1, 5)
    await engine.close()
    assert [chunk.finish for chunk in await consumer] == [Finish.ABORT]


async def test_a_finished_generation_is_not_aborted_by_closing_it() -> None:
    engine = ScriptedEngine(MODEL, [[1, RETURN]])
    generator = generated(engine, generation())
    await anext(generator)
    await generator.aclose()
    assert engine.aborted == {}


@pytest.mark.parametrize("error", [EngineError("gpu"), EngineUnavailable("gone"), EngineOverloaded("full")])
async def test_an_engine_dies_of_the_error_that_its_script_names(error: EngineError) -> None:
    engine = ScriptedEngine(MODEL, [[1], Die(error)])
    with pytest.raises(type(error)) as raised:
        await play(engine, generation())
    assert raised.value is error
    assert engine.running == 0


async def test_an_end_without_a_finish_has_none() -> None:
    chunks = await play(ScriptedEngine(MODEL, [[1], EndWithoutFinish()]), generation())
    assert [(chunk.tokens, chunk.finish) for chunk in chunks] == [([1], None)]


async def test_a_script_may_finish_as_it_likes_and_say_what_was_cached() -> None:
    chunks = await play(ScriptedEngine(MODEL, [[1], FinishWith(Finish.ABORT, cached_tokens=2)]), generation())
    assert chunks[-1] == Chunk([], Finish.ABORT, 2)


async def test_an_unready_engine_says_so_and_still_plays() -> None:
    engine = ScriptedEngine(MODEL, [[RETURN]])
    engine.unready = EngineUnavailable("warming up")
    with pytest.raises(EngineUnavailable, match="warming up"):
        await engine.check()
    assert len(await play(engine, generation())) == 1


def test_an_engine_without_a_script_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to play"):
        ScriptedEngine(MODEL)


async def test_it_stops_at_the_stop_ids_that_it_is_given_and_at_no_others() -> None:
    engine = ScriptedEngine(MODEL, [[5, CALL, 6, RETURN, 7, END, 8]])
    stops = [(), (RETURN,), STOPS, (END,)]
    played = [await heard(engine, Generation("one", PROMPT, Sampling(100, stop_ids=each))) for each in stops]
    assert [len(tokens) for tokens in played] == [7, 4, 2, 6]


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


async def test_a_death_is_no_place_to_go_on_from() -> None:
    engine = ScriptedEngine(MODEL, [[5, MESSAGE], Die(EngineUnavailable("gone")), [6]], [[9]])
    with pytest.raises(EngineUnavailable):
        await play(engine, generation())
    assert await heard(engine, on(5, MESSAGE)) == [9]


async def test_a_death_behind_the_place_where_it_was_broken_off_is_still_to_come() -> None:
    engine = ScriptedEngine(MODEL, [[5, MESSAGE], Die(EngineUnavailable("gone")), [6]], [[9]])
    await break_off(engine)
    with pytest.raises(EngineUnavailable):
        await play(engine, on(5, MESSAGE))


async def test_calls_that_go_on_take_no_script_from_those_that_begin() -> None:
    engine = ScriptedEngine(MODEL, [[5, CALL, 6, RETURN]], [[7, RETURN]])
    await heard(engine, generation())
    await heard(engine, on(5, CALL))
    assert await heard(engine, generation()) == [7, RETURN]
    assert len(engine.generations) == 3
