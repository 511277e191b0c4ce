"""vLLM over HTTP: choosing among several servers, and what happens when one of them won't."""

from typing import Any

import pytest

from service.engine.port import EngineError, EngineOverloaded, EngineUnavailable, Finish
from service.engine.servers.choosing import LEAST_SHARE
from service.engine.servers.engine import ServersEngine
from service.engine.vllm.servers import TokensEndpoint
from tests.support.engine.connected import ask, connected, failure, hold, scripted, several
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.engine.scripted import Stall
from tests.support.engine.standin import Standin
from tests.support.engine.standin_wire import error_event, tokens_event

STALLING = [[5], Stall()]


async def preferred(engine: ServersEngine, servers: list[Standin], **fields: Any) -> tuple[Standin, Standin]:
    """The one of two servers that such generations go to, and the other."""
    await ask(engine, **fields)
    first, second = sorted(servers, key=lambda server: -len(server.generations))
    first.asked.clear()
    return first, second


async def test_a_conversation_stays_on_one_server_and_conversations_spread() -> None:
    async with several(*[[[5]]] * 3) as servers, connected(*servers) as engine:
        for _ in range(5):
            await ask(engine, affinity="one")
        assert sorted(len(server.generations) for server in servers) == [0, 0, 5]
        for number in range(60):
            await ask(engine, affinity=str(number))
        assert all(len(server.generations) >= 5 for server in servers)


async def test_conversations_leave_a_server_that_is_far_busier_than_the_others() -> None:
    async with several(STALLING, STALLING) as servers, connected(*servers) as engine:
        held = [await hold(engine, affinity="one") for _ in range(LEAST_SHARE)]
        assert sorted(len(server.generations) for server in servers) == [0, LEAST_SHARE]
        held += [await hold(engine, affinity="one") for _ in range(7 * LEAST_SHARE)]
        assert sorted(len(server.generations) for server in servers) == [12, 52]
        for task in held:
            task.cancel()


@pytest.mark.parametrize("how", ["dead", "overloaded", "overloaded behind a 200", "changed", "unhealthy", "full"])
async def test_a_server_that_can_not_begin_is_passed_over(how: str) -> None:
    async with several([[5]], [[5]]) as servers, connected(*servers, connections=1) as engine:
        first, second = await preferred(engine, servers, affinity="one")
        held = None
        match how:
            case "dead":
                await first.die()
            case "overloaded":
                first.instead[TokensEndpoint.GENERATE] = Instead((), 503)
            case "overloaded behind a 200":
                first.instead[TokensEndpoint.GENERATE] = Instead((error_event(503, "queue"),))
            case "changed":
                first.model = "babbler"
            case "unhealthy":
                first.instead["/health"] = Instead((), 503)
                first.instead[TokensEndpoint.GENERATE] = Instead((), 500)
            case _:
                first.engine = scripted(STALLING)
                held = await hold(engine, affinity="one")
        assert (await ask(engine, affinity="one")).finish is Finish.STOP
        assert len(second.generations) == 1
        await engine.check()
        if held:
            held.cancel()


async def test_what_was_asked_of_one_model_is_never_sampled_by_another() -> None:
    async with several([[5]], [[5]]) as servers, connected(*servers) as engine:
        for server in servers:
            server.model = "babbler"
        assert isinstance(await failure(engine, model="talker"), EngineUnavailable)
        assert {asked.body["model"] for server in servers for asked in server.generations} == {"talker"}
        assert (await ask(engine, model="babbler")).finish is Finish.STOP


@pytest.mark.parametrize(
    "instead",
    [
        Instead((), status=0, then=Then.CUT),
        Instead((tokens_event([5]), error_event(503, "queue"))),
        Instead((error_event(400, "no"),)),
    ],
)
async def test_a_generation_that_a_server_had_begun_goes_nowhere_else(instead: Instead) -> None:
    async with several([[5]], [[5]]) as servers, connected(*servers) as engine:
        first, second = await preferred(engine, servers, affinity="one")
        first.instead[TokensEndpoint.GENERATE] = instead
        assert isinstance(await failure(engine, affinity="one"), EngineError)
        assert (len(first.generations), len(second.generations)) == (1, 0)


async def test_where_all_are_overloaded_each_is_asked_once() -> None:
    async with several([[5]], [[5]], [[5]]) as servers, connected(*servers) as engine:
        for server in servers:
            server.instead[TokensEndpoint.GENERATE] = Instead((), 503)
        assert type(await failure(engine)) is EngineOverloaded
        assert [len(server.generations) for server in servers] == [1, 1, 1]
        await engine.check()


async def test_where_all_are_gone_none_is_asked_for_ever() -> None:
    async with several([[5]], [[5]]) as servers, connected(*servers) as engine:
        for server in servers:
            server.instead[TokensEndpoint.GENERATE] = Instead((), 404)
        assert isinstance(await failure(engine), EngineUnavailable)
        assert sum(len(server.generations) for server in servers) == 3


async def test_the_context_is_the_smallest_of_the_servers_that_are_up() -> None:
    async with several([[5]], [[5]]) as (large, small):
        small.context_tokens = 2048
        async with connected(large, small) as engine:
            assert engine.model.context_tokens == 2048
            await small.die()
            for number in range(30):
                await ask(engine, affinity=str(number))
            assert engine.model.context_tokens == large.context_tokens


async def test_a_server_with_another_model_is_left_out() -> None:
    async with several([[5]], [[5]]) as servers:
        servers[1].model = "babbler"
        async with connected(*servers, model="talker") as engine:
            for number in range(20):
                await ask(engine, affinity=str(number))
            assert [len(server.generations) for server in servers] == [20, 0]
