"""vLLM over HTTP, one server that is well: what it is asked and never told, and what is let go of at any end."""

import asyncio
import logging
from array import array

import pytest

from service.engine.port import Chunk, EngineError, EngineOverloaded, EngineUnavailable, Finish, Sampling, TokenLogprobs
from service.engine.vllm.servers import TokensEndpoint
from service.harmony.tokens import RETURN
from tests.support.engine.connected import ask, connected, failure, generation, hold, scripted
from tests.support.engine.misbehaviour import Instead
from tests.support.engine.scripted import Stall
from tests.support.engine.standin import standing_in
from tests.support.engine.standin_wire import DONE, events, tokens_event
from tests.support.waiting import until

KEY = "sk-engine-0123456789"


@pytest.mark.parametrize("endpoint", TokensEndpoint)
async def test_a_request_arrives_with_all_that_it_came_with(endpoint: TokensEndpoint) -> None:
    trace = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"), ("tracestate", "vendor=1"))
    async with standing_in(scripted(), endpoint=endpoint, api_key=KEY) as server, connected(server, api_key=KEY) as to:
        sampled = await ask(to, id="resp_9", cache_salt="acme", priority=3, trace=trace, prompt=array("I", [1, 2, 3]))
        (asked,) = server.generations
    assert (sampled.tokens, sampled.finish, sampled.cached_tokens) == ([5, 6, 7, RETURN], Finish.STOP, 0)
    assert asked.path == endpoint
    assert {"x-request-id": "resp_9", "authorization": f"Bearer {KEY}", **dict(trace)}.items() <= asked.headers.items()
    assert asked.headers["content-type"] == "application/json"
    expected = {"model": "talker", "cache_salt": "acme", "priority": 3, "stream": True}
    assert expected.items() <= asked.body.items()


async def test_a_wrong_key_names_the_setting_and_no_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with standing_in(scripted(), api_key="sk-another") as server, connected(server, api_key=KEY) as engine:
        error = await failure(engine)
    assert isinstance(error, EngineUnavailable)
    assert "HARMONIUM_ENGINE_API_KEY" in str(error)
    for text in (str(error), caplog.text, *(str(record.__dict__) for record in caplog.records)):
        assert KEY not in text
        assert "sk-another" not in text


@pytest.mark.parametrize(("ours", "seen"), [(0, 4096), (1024, 1024), (100_000, 4096)])
async def test_a_context_of_ours_may_shorten_the_servers(ours: int, seen: int) -> None:
    async with standing_in(scripted()) as server, connected(server, context_tokens=ours) as engine:
        assert engine.model.context_tokens == seen


async def test_a_router_is_told_which_generations_belong_together_and_not_by_whom() -> None:
    async with standing_in(scripted()) as server, connected(server) as engine:
        for affinity in ("resp_secret", "resp_secret", "another", ""):
            await ask(engine, affinity=affinity)
        await ask(engine, affinity="another", cache_salt="of another tenant")
        first, second, third, none, fourth = (each.headers.get("x-session-id") for each in server.generations)
    assert first == second != third
    assert fourth not in (third, None)
    assert first is not None
    assert "secret" not in first
    assert none is None


LONG = Chunk(list(range(1000)), logprobs=[TokenLogprobs(-0.25, ((token, -0.25),)) for token in range(1000)])


async def test_a_large_event_is_taken_in_turns_of_the_loop() -> None:
    turn, taken = 0, list[tuple[int, Chunk]]()

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def between() -> bool:
        return True

    sent = b"".join(events(TokensEndpoint.GENERATE, LONG, 1000, [1, 2, 3])) + tokens_event([], "length") + DONE
    asked, instead = generation(sampling=Sampling(1000, logprobs=1)), {TokensEndpoint.GENERATE: Instead((sent,))}
    async with standing_in(scripted(), instead=instead) as server, connected(server) as engine:
        others = asyncio.create_task(turns())
        await engine.sample(asked, lambda chunk: not taken.append((turn, chunk)), between)
        others.cancel()
    parts = [chunk for _, chunk in taken if chunk.tokens]
    assert [token for part in parts for token in part.tokens] == LONG.tokens
    assert [each for part in parts for each in part.logprobs or ()] == LONG.logprobs
    assert len({turn for turn, _ in taken[: len(parts)]}) == len(parts) == 8
    assert [chunk.finish for _, chunk in taken[8:]] == [Finish.LENGTH]


@pytest.mark.parametrize("path", [TokensEndpoint.GENERATE, "/health"])
async def test_prompts_and_keys_go_nowhere_that_a_server_points_to(path: str) -> None:
    async with standing_in(scripted()) as elsewhere, standing_in(scripted()) as server, connected(server) as engine:
        server.instead[path] = Instead((), 307, headers=(("location", elsewhere.url + path),))
        if path == "/health":
            await server.die()
            await failure(engine)
            await server.start()
        assert isinstance(await failure(engine), EngineError)
        assert elsewhere.asked == []


TICKS = range(0, 80, 5)
"""At which turns of the loop something is broken off; a generation takes some 50."""


async def test_closing_leaves_no_task_and_no_connection() -> None:
    async with standing_in(scripted([[5], Stall()])) as server, standing_in(scripted([[5], Stall()])) as other:
        before = asyncio.all_tasks()
        async with connected(server, other, probe_seconds=0.01) as engine:
            tasks = [await hold(engine, affinity=str(number)) for number in range(6)]
            await until(lambda: len(server.asked) > 20)
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: server.open_connections + other.open_connections == 0)
        await until(lambda: asyncio.all_tasks() <= before)


async def test_no_more_generations_are_under_way_than_allowed() -> None:
    async with standing_in(scripted([[5], Stall()])) as server, connected(server, connections=2) as engine:
        held = [await hold(engine) for _ in range(2)]
        error = await failure(engine)
        assert type(error) is EngineOverloaded
        assert "2 generations" in str(error)
        assert len(server.generations) == 2
        await engine.check()
        held[0].cancel()
        await until(lambda: engine.running == 1)
        (await hold(engine)).cancel()
        held[1].cancel()


@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize("what", ["cancelled", "closed", "dead"])
async def test_whatever_breaks_off_at_any_moment_leaves_nothing(what: str, ticks: int) -> None:
    async with standing_in(scripted([[5], Stall()])) as server, connected(server) as engine:
        task = asyncio.create_task(ask(engine))
        for _ in range(ticks):
            await asyncio.sleep(0)
        match what:
            case "cancelled":
                task.cancel()
            case "closed":
                await engine.close()
            case _:
                await server.die()
        async with asyncio.timeout(20):
            (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError if what == "cancelled" else EngineUnavailable)
        assert engine.running == 0
        await until(lambda: server.running == 0)
        if what == "closed":
            await until(lambda: server.open_connections == 0)
            await engine.start()
        server.engine = scripted()
        if what == "dead":
            await server.start()
        assert (await ask(engine)).finish
