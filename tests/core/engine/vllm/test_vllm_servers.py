"""vLLM over HTTP: finding out what a server is, losing it, having it back, and choosing among several."""

from typing import Any

import pytest

from service.engine.port import EngineError, EngineOverloaded, EngineUnavailable, Finish
from service.engine.servers.choosing import LEAST_SHARE
from service.engine.servers.engine import ServersEngine
from service.engine.vllm.servers import TokensEndpoint
from tests.support.engine.connected import ask, connected, failure, hold, scripted, several
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.engine.scripted import Stall
from tests.support.engine.standin import Standin, standing_in
from tests.support.engine.standin_wire import error_event, tokens_event
from tests.support.waiting import until


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [getattr(record, "fields", {}) for record in caplog.records]


ABORTS = "generations can't be aborted here and go by /v1/completions"
HELD = ", and formats and a call's arguments are held only behind `final`"
FAIL = ", and formats and a call's arguments fail"


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("0.33.0rc1.dev5+g12ab34c", ""),
        ("0.31.1.dev7+g12ab34c.cu130", f"vLLM 0.31.1.dev7+g12ab34c.cu130: {ABORTS}; use 0.32 or newer"),
        ("0.25.1", f"vLLM 0.25.1: {ABORTS}{HELD}; use 0.32 or newer"),
        ("0.32.0 in Rust", f"vLLM 0.32.0 with its frontend in Rust: {ABORTS}{FAIL}; leave out VLLM_USE_RUST_FRONTEND"),
        ("0.1.dev1+g12ab34c", ""),  # it was built without tags
        ("0.30.1 <script>", ""),
    ],
)
async def test_a_server_of_an_older_version_is_asked_for_completions_and_its_operator_is_told_once(
    version: str, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    version, rust, _ = version.partition(" in Rust")
    traits = {"version": version, "rust": version if rust else None}
    async with standing_in(scripted(), **traits) as server, connected(server, probe_seconds=0.02) as engine:
        await ask(engine)
        probes = len(server.asked)
        await until(lambda: len(server.asked) > probes + 5)
        assert server.generations[0].path == (TokensEndpoint.COMPLETIONS if advice else TokensEndpoint.GENERATE)
        release = f"vLLM {version}" if advice or version.startswith("0.33") else ""
        assert engine.releases() == ({release: advice} if release else {})
        assert engine.model.constrains == (HELD not in advice and FAIL not in advice)
        assert [each["advice"] for each in logged(caplog)] == [advice] * bool(advice)
        await server.die()
        await becomes(engine, ready=False)
        server.version, server.rust = "0.32.0", None
        await server.start()
        await becomes(engine, ready=True)
        assert engine.releases() == {"vLLM 0.32.0": ""}


@pytest.mark.parametrize("now", [{"endpoint": TokensEndpoint.COMPLETIONS}, {"model": "babbler"}])
async def test_a_server_that_changed_unseen_is_asked_again_and_serves_at_once(now: dict[str, Any]) -> None:
    async with standing_in(scripted()) as server, connected(server) as engine:
        await ask(engine)
        for name, value in now.items():
            setattr(server, name, value)
        assert (await ask(engine)).finish is Finish.STOP
        assert server.generations[-1].path == server.endpoint
        assert engine.model.id == server.model


async def test_a_probe_finds_out_that_a_server_serves_something_else() -> None:
    async with standing_in(scripted()) as server, connected(server, probe_seconds=0.02) as engine:
        await engine.check()
        server.model = "babbler"
        await until(lambda: engine.model.id == "babbler")


async def test_a_server_that_fails_at_a_request_and_is_sick_is_away() -> None:
    async with standing_in(scripted()) as server, connected(server) as engine:
        await ask(engine)
        server.instead = {TokensEndpoint.GENERATE: Instead((), 500), "/health": Instead((), 503)}
        assert isinstance(await failure(engine), EngineUnavailable)


async def test_a_server_that_returns_serves_at_once_and_is_what_it_is_now() -> None:
    async with standing_in(scripted()) as server, connected(server) as engine:
        await ask(engine)
        await server.die()
        for _ in range(2):
            assert isinstance(await failure(engine), EngineUnavailable)
        with pytest.raises(EngineUnavailable, match="can't be reached"):
            await engine.check()
        server.endpoint, server.context_tokens = TokensEndpoint.COMPLETIONS, 2048
        await server.start()
        assert (await ask(engine)).finish is Finish.STOP
        await engine.check()
        assert engine.model.context_tokens == 2048


async def becomes(engine: ServersEngine, *, ready: bool) -> None:
    """Wait until the engine passes its check, or until it doesn't."""

    async def is_ready() -> bool:
        try:
            await engine.check()
        except EngineUnavailable:
            return False
        return True

    await until(is_ready, wanted=lambda found: found is ready)


SICK: dict[str, tuple[dict[str, Instead], str]] = {
    "no health": ({"/health": Instead((), 503)}, "not healthy (status 503); it answers once its model is loaded"),
    "no answer": ({"/health": Instead((), 0, Then.STALL)}, "can't be reached"),
    "an answer that never ends": (
        {"/v1/models": Instead((b"x" * 65_536,), 200, Then.AGAIN)},
        "does not list its models",
    ),
    "a list that is no text": ({"/v1/models": Instead((b'{"data":[{"id":"\xff"}]}',))}, "does not list its models"),
    "an empty list": ({"/v1/models": Instead((b'{"data":[]}',))}, "does not serve the model"),
    "no length": ({"/v1/models": Instead((b'{"data":[{"id":"talker"}]}',))}, "context length"),
    "strange defaults": ({"/v1/completions/render": Instead((b"[]",))}, "sampling defaults"),
}


@pytest.mark.parametrize("sickness", SICK)
async def test_a_sick_server_is_not_used_until_it_is_well(sickness: str, caplog: pytest.LogCaptureFixture) -> None:
    instead, words = SICK[sickness]
    access = {"connect_seconds": 0.2 if sickness == "no answer" else 5, "probe_seconds": 0.02}
    async with standing_in(scripted(), instead=dict(instead)) as server, connected(server, **access) as engine:
        with pytest.raises(EngineUnavailable) as refusal:
            await engine.check()
        assert words in str(refusal.value)
        assert "127.0.0.1" not in str(refusal.value)
        assert any(words in each.get("reason", "") and each["url"] == server.url for each in logged(caplog))
        server.instead.clear()
        await becomes(engine, ready=True)
        assert (await ask(engine)).finish is Finish.STOP


async def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with standing_in(scripted()) as server, connected(server) as engine:
        await server.die()
        for _ in range(5):
            await failure(engine)
    assert [each["reason"] for each in logged(caplog)] == [
        "the vLLM server can't be reached; it answers once its model is loaded (ConnectionRefusedError)"
    ]


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
