"""SGLang over HTTP: how its generations are ended, and what it is never asked."""

import asyncio

from service.engine.port import EngineRefused, Finish
from service.engine.servers.experimental import ABORT, GENERATE, READY
from tests.support.engine.connected import ask, connected, failure, hold, scripted
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.engine.scripted import Stall
from tests.support.sglang.standin import sglang
from tests.support.sglang.wire import event
from tests.support.waiting import until

KEY = "sk-engine-0123456789"


async def test_a_generation_that_is_hung_up_on_is_ended_long_before_the_server_notices() -> None:
    async with sglang(scripted([[5], Stall()]), hang_up_seconds=300) as server, connected(server) as engine:
        held = await hold(engine)
        held.cancel()
        await until(lambda: server.running == 0)
        assert server.aborts == [server.generations[0].body["rid"]]


async def test_one_that_has_ended_is_left_alone() -> None:
    async with sglang(scripted()) as server, connected(server) as engine:
        assert (await ask(engine)).finish is Finish.STOP
        assert isinstance(await failure(engine, prompt=[5] * 5000), EngineRefused)
        await ask(engine)
        assert server.aborts == []


async def test_one_that_goes_on_behind_a_broken_answer_is_ended() -> None:
    async with sglang(scripted([[5], Stall()]), hang_up_seconds=300) as server, connected(server) as engine:
        server.instead[GENERATE] = Instead((event([5], 1), b"data: Hello.\n\n"), then=Then.STALL)
        await failure(engine)
        await until(lambda: len(server.aborts) == 1)


async def test_one_that_was_given_up_before_it_began_is_ended() -> None:
    async with sglang(scripted()) as server, connected(server) as engine:
        server.instead[GENERATE] = Instead((), 0, Then.STALL)
        asking = asyncio.create_task(ask(engine))
        await until(lambda: len(server.generations) == 1)
        asking.cancel()
        await until(lambda: server.aborts == [server.generations[0].body["rid"]])


async def test_a_response_goes_on_at_once_behind_a_generation_of_its_own_that_is_just_ending() -> None:
    async with sglang(scripted([[5], Stall()], [[6]]), hang_up_seconds=300) as server, connected(server) as engine:
        server.instead[ABORT] = Instead((), 0, Then.STALL)  # the first is never ended
        (await hold(engine)).cancel()
        assert (await ask(engine)).tokens == [6]
        assert server.running == 1


async def test_its_health_is_read_where_that_costs_no_token_and_its_key_is_sent_everywhere() -> None:
    async with sglang(scripted(), api_key=KEY) as server, connected(server, api_key=KEY, probe_seconds=0.05) as engine:
        await ask(engine)
        await until(lambda: len([each for each in server.asked if each.path == READY]) > 2)
        told = {"/metrics", "/server_info"}
        assert {each.path for each in server.asked} == {READY, "/model_info", "/v1/models", GENERATE, *told}


async def test_the_room_of_its_cache_is_what_it_says() -> None:
    async with sglang(scripted(), room=4000) as server, connected(server) as engine:
        assert [(load.tokens, load.room) for load in engine.loads().values()] == [(0, 4000)]
