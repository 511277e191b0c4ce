"""Several engines as one: which of them a model's name chooses, and how they come and go while they are at work."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from service.engine.engines import Engines, Member
from service.engine.port import EngineUnavailable, Generation, ModelCard, NotServed, Sampling
from service.harmony.tokens import RETURN, STOPS
from tests.support.engine.generating import generated
from tests.support.engine.scripted import ScriptedEngine, ScriptSource, Stall
from tests.support.waiting import until

LONG, SHORT = 8192, 4096


def engine(model: str, *scripts: ScriptSource, context: int = LONG) -> ScriptedEngine:
    """One that plays scripts, by default a short one."""
    return ScriptedEngine(ModelCard(model, 0, context), *(scripts or ([[5, RETURN]],)))


def member(name: str, *scripts: ScriptSource, aliases: tuple[str, ...] = (), context: int = LONG) -> Member:
    """A member of this name, whose engine has another one for its model."""
    model = f"served-{name}"
    return Member(engine(model, *scripts, context=context), name, model, aliases, key=name)


def played(one: Member) -> ScriptedEngine:
    assert isinstance(one.engine, ScriptedEngine)
    return one.engine


@asynccontextmanager
async def started(*members: Member, drain_seconds: float = 0.05) -> AsyncIterator[Engines]:
    engines = Engines(members, drain_seconds=drain_seconds)
    await engines.start()
    try:
        yield engines
    finally:
        await engines.close()


async def sample(engines: Engines, model: str, id: str = "resp_1") -> list[int]:
    generation = Generation(id, [1, 2, 3], Sampling(100, stop_ids=STOPS), model=model)
    return [token async for chunk in generated(engines, generation) for token in chunk.tokens]


async def card(engines: Engines, name: str) -> ModelCard:
    found = await engines.find(name)
    assert found is not None
    return found


async def test_a_name_or_an_alias_chooses_the_engine_and_no_name_is_the_first() -> None:
    async with started(member("a", aliases=("x",)), member("b", aliases=("y",), context=SHORT)) as engines:
        for name, id, context in [
            ("", "a", LONG),
            ("a", "a", LONG),
            ("x", "a", LONG),
            ("b", "b", SHORT),
            ("y", "b", SHORT),
        ]:
            found = await card(engines, name)
            assert (found.id, found.context_tokens) == (id, context)
        assert await engines.find("c") is None
        assert await engines.find("served-a") is None
        assert [offer.names for offer in engines.offers()] == [("a", "x"), ("b", "y")]


async def test_what_somebody_may_not_use_is_not_there_for_them() -> None:
    def may(names: Sequence[str]) -> bool:
        return "b" in names

    async with started(member("a", aliases=("x",)), member("b", aliases=("y",))) as engines:
        assert [await engines.find(name, may) for name in ("a", "x")] == [None, None]
        for name in ("b", "y", ""):  # no name is the first that they may use
            found = await engines.find(name, may)
            assert found is not None
            assert found.id == "b"
        assert [offer.names for offer in engines.offers(may)] == [("b", "y")]
        assert await engines.find("", lambda names: False) is None


async def test_one_that_is_taken_out_runs_to_its_end_begins_nothing_new_and_is_closed() -> None:
    go_on = asyncio.Event()
    leaving, staying = member("a", [[5], Stall(go_on), [6, RETURN]], [[7, RETURN]]), member("b")
    async with started(leaving, staying) as engines:
        running = asyncio.create_task(sample(engines, "a"))
        await until(lambda: played(leaving).running == 1)
        await engines.change([staying])
        assert await engines.find("a") is None
        go_on.set()
        assert await running == [5, 6, RETURN]
        assert await sample(engines, "a", "resp_1-1") == [7, RETURN], "the next generation of the same response"
        await until(lambda: not played(leaving).servers()["scripted"])
        with pytest.raises(NotServed):
            await sample(engines, "a")
        assert await sample(engines, "b") == [5, RETURN]


async def test_a_new_one_is_started_first_and_where_it_fails_all_stays() -> None:
    first, second = member("a"), member("b")

    async def fail() -> None:
        raise EngineUnavailable("no memory")

    async with started(first) as engines:
        played(second).start = fail  # type: ignore[method-assign]
        with pytest.raises(EngineUnavailable, match="no memory"):
            await engines.change([first, second])
        assert [offer.names for offer in engines.offers()] == [("a",)]
        assert await sample(engines, "a") == [5, RETURN]
