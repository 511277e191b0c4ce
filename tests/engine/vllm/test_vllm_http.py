"""vLLM over HTTP, one server that is well: the conformance suite, what it is asked, and what each of its errors is."""

import logging
from array import array
from collections.abc import AsyncGenerator

import pytest

from service.engine.demo import DemoEngine
from service.engine.demo.engine import likelihood
from service.engine.port import (
    Chunk,
    EngineBroke,
    EngineError,
    EngineOverloaded,
    EngineRefused,
    EngineUnavailable,
    Finish,
    Sampling,
)
from service.engine.servers.engine import Access
from service.engine.vllm.servers import Endpoint, Vllm
from service.harmony.tokens import RETURN
from tests.support.engine.connected import ask, connected, failure, generation, scripted
from tests.support.engine.demo_prompts import LARGE, DemoPrompts
from tests.support.engine.generating import generated
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.engine.prompts import prompt, user
from tests.support.engine.standin import Standin, standing_in
from tests.support.engine.standin_wire import (
    DONE,
    KEEP_ALIVE,
    error_body,
    error_event,
    event,
    tokens_event,
)
from tests.support.engine.watched import WatchedHttp


class HttpConformance(DemoPrompts):
    """What both endpoints share."""

    endpoint: Endpoint

    @pytest.fixture
    async def server(self) -> AsyncGenerator[Standin, None]:
        async with standing_in(DemoEngine(LARGE), endpoint=self.endpoint) as server:
            yield server
            assert server.running == 0

    @pytest.fixture
    async def engine(self, server: Standin) -> AsyncGenerator[WatchedHttp, None]:
        engine = WatchedHttp(Vllm(), Access((server.url,)))
        await engine.start()
        yield engine
        await engine.close()


class TestConformanceOverGenerate(HttpConformance):
    endpoint = Endpoint.GENERATE


class TestConformanceOverCompletions(HttpConformance):
    endpoint = Endpoint.COMPLETIONS


KEY = "sk-engine-0123456789"


@pytest.mark.parametrize("endpoint", Endpoint)
async def test_a_request_arrives_with_all_that_it_came_with(endpoint: Endpoint) -> None:
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


async def test_without_a_key_or_a_trace_none_is_sent() -> None:
    async with standing_in(scripted()) as server, connected(server) as engine:
        await ask(engine)
        assert not {"authorization", "traceparent", "tracestate", "cookie"} & server.generations[0].headers.keys()


async def test_a_wrong_key_names_the_setting_and_no_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with standing_in(scripted(), api_key="sk-another") as server, connected(server, api_key=KEY) as engine:
        error = await failure(engine)
    assert isinstance(error, EngineUnavailable)
    assert "HARMONIUM_ENGINE_API_KEY" in str(error)
    for text in (str(error), caplog.text, *(str(record.__dict__) for record in caplog.records)):
        assert KEY not in text
        assert "sk-another" not in text


async def test_the_model_card_is_what_the_server_says() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.1, "repetition_penalty": 1.05}
    traits = {"model": "a/b", "context_tokens": 2048, "defaults": defaults}
    async with standing_in(scripted(), **traits) as server, connected(server) as engine:
        card = engine.model
    assert (card.id, card.context_tokens) == ("a/b", 2048)
    assert {name: getattr(card.defaults, name) for name in defaults} == defaults


@pytest.mark.parametrize(("ours", "seen"), [(0, 4096), (1024, 1024), (100_000, 4096)])
async def test_a_context_of_ours_may_shorten_the_servers(ours: int, seen: int) -> None:
    async with standing_in(scripted()) as server, connected(server, context_tokens=ours) as engine:
        assert engine.model.context_tokens == seen


async def test_a_router_that_does_not_say_the_context_needs_ours() -> None:
    async with standing_in(scripted()) as server:
        server.instead = {"/v1/models": Instead((b'{"object":"list","data":[{"id":"%s"}]}' % server.model.encode(),))}
        async with connected(server) as engine:
            assert "HARMONIUM_CONTEXT_TOKENS" in str(await failure(engine))
        async with connected(server, context_tokens=8192) as engine:
            assert engine.model.context_tokens == 8192
            assert (await ask(engine)).finish is Finish.STOP


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


async def test_tokens_that_wait_come_as_one_chunk() -> None:
    sent = b"".join(map(tokens_event, ([1], [2], [3, 4]))) + tokens_event([5], "length") + DONE
    instead = {Endpoint.GENERATE: Instead((sent,))}
    async with standing_in(scripted(), instead=instead) as server, connected(server) as engine:
        sampled = await ask(engine)
    assert sampled.chunks == [Chunk([1, 2, 3, 4, 5]), Chunk([], Finish.LENGTH)]


@pytest.mark.parametrize("tokens_an_event", [1, 2, 7])
async def test_however_many_tokens_an_event_has_they_are_the_same(tokens_an_event: int) -> None:
    said = [[1000, *range(20)], [*range(30), RETURN]]
    async with standing_in(scripted(said), tokens_an_event=tokens_an_event) as server, connected(server) as engine:
        assert (await ask(engine)).tokens == [*said[0], *said[1]]


async def test_comments_keep_a_stream_alive_and_say_nothing() -> None:
    pieces = (KEEP_ALIVE, tokens_event([1]), KEEP_ALIVE, KEEP_ALIVE, tokens_event([2], "stop"), KEEP_ALIVE, DONE)
    instead = {Endpoint.GENERATE: Instead(pieces)}
    async with standing_in(scripted(), instead=instead) as server, connected(server) as engine:
        assert (await ask(engine)).tokens == [1, 2]


BEGUN = tokens_event([1, 2])
REFUSED, FULL, BROKEN = (error_event(status, "because") for status in (400, 503, 500))
FAULTS: dict[str, tuple[Instead, type[EngineError], str]] = {
    "a refusal": (Instead((event(error_body(400, "because"))[6:],), 400), EngineRefused, "because"),
    "a refusal behind a 200": (Instead((REFUSED, DONE)), EngineRefused, "because"),
    "overload": (Instead((event(error_body(503, "because"))[6:],), 503), EngineOverloaded, "no more work"),
    "overload behind a 200": (Instead((FULL, DONE)), EngineOverloaded, "no more work"),
    "overload of a proxy": (Instead((b"slow down",), 429), EngineOverloaded, "no more work"),
    "overload in the middle": (Instead((BEGUN, FULL, DONE)), EngineOverloaded, "no more work"),
    "failure": (Instead((), 500), EngineError, "status 500"),
    "failure behind a 200": (Instead((BROKEN, DONE)), EngineError, "status 500"),
    "failure in the middle": (Instead((BEGUN, BROKEN, DONE)), EngineError, "status 500"),
    "a gateway's page": (Instead((b"<html>Bad Gateway</html>",), 502), EngineUnavailable, "gateway"),
    "a cut behind the head": (Instead((), then=Then.CUT), EngineBroke, "broke"),
    "a cut in the middle": (Instead((BEGUN,), then=Then.CUT), EngineBroke, "broke"),
    "a cut in an event": (Instead((BEGUN[:-9],), then=Then.CUT), EngineBroke, "broke"),
    "no finish": (Instead((BEGUN, DONE)), EngineBroke, "broke off"),
    "nothing": (Instead(()), EngineBroke, "broke off"),
    "an abort": (Instead((BEGUN, tokens_event([], "abort"), DONE)), EngineUnavailable, "aborted"),
    "an error": (Instead((BEGUN, tokens_event([], "error"), DONE)), EngineError, "'error'"),
    "a finish of another kind": (Instead((tokens_event([1], "tool_calls"), DONE)), EngineError, "'tool_calls'"),
    "garbage": (Instead((BEGUN, b"data: Hello.\n\n")), EngineError, "no event"),
    "an endless event": (Instead((b"data: ", b"x" * 65_536), then=Then.AGAIN), EngineError, "bytes"),
}


@pytest.mark.parametrize("then", [Then.CUT, Then.STALL])
@pytest.mark.parametrize("behind", [(), (DONE,)], ids=["nothing", "done"])
async def test_an_answer_is_whole_with_its_finish_whatever_becomes_of_the_connection(
    behind: tuple[bytes, ...], then: Then
) -> None:
    instead = {Endpoint.GENERATE: Instead((BEGUN, tokens_event([3], "stop"), *behind), then=then)}
    async with standing_in(scripted(), instead=instead) as server, connected(server, tail_seconds=0.05) as engine:
        sampled = await ask(engine)
        assert (sampled.tokens, sampled.finish) == ([1, 2, 3], Finish.STOP)
        await engine.check()


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("fault", FAULTS)
async def test_each_fault_is_its_error_and_the_next_request_is_served(endpoint: Endpoint, fault: str) -> None:
    instead, kind, words = FAULTS[fault]
    async with standing_in(scripted(), endpoint=endpoint) as server, connected(server) as engine:
        server.instead[endpoint] = instead
        error = await failure(engine)
        assert type(error) is kind
        assert words in str(error)
        assert not any(secret in str(error) for secret in ("127.0.0.1", str(server.port), "talker"))
        assert engine.running == 0
        del server.instead[endpoint]
        assert (await ask(engine)).finish is Finish.STOP


@pytest.mark.parametrize("fault", [name for name, (instead, _, _) in FAULTS.items() if BEGUN in instead.pieces])
async def test_what_came_before_a_fault_is_handed_over(fault: str) -> None:
    async with standing_in(scripted()) as server, connected(server) as engine:
        server.instead[Endpoint.GENERATE] = FAULTS[fault][0]
        chunks = generated(engine, generation())
        assert await anext(chunks) == Chunk([1, 2])
        with pytest.raises(EngineError):
            await anext(chunks)


@pytest.mark.parametrize("status", [302, 307])
@pytest.mark.parametrize("path", [Endpoint.GENERATE, "/health"])
async def test_prompts_and_keys_go_nowhere_that_a_server_points_to(path: str, status: int) -> None:
    async with standing_in(scripted()) as elsewhere, standing_in(scripted()) as server, connected(server) as engine:
        server.instead[path] = Instead((), status, headers=(("location", elsewhere.url + path),))
        if path == "/health":
            await server.die()
            await failure(engine)
            await server.start()
        assert isinstance(await failure(engine), EngineError)
        assert elsewhere.asked == []


@pytest.mark.parametrize("endpoint", Endpoint)
async def test_log_probabilities_are_the_same_over_both_endpoints(endpoint: Endpoint) -> None:
    async with standing_in(DemoEngine(LARGE), endpoint=endpoint) as server, connected(server) as engine:
        sampled = await ask(engine, prompt=prompt(user("hello")), sampling=Sampling(5, 0, logprobs=1))
        assert sampled.logprobs == [likelihood(token, 1) for token in sampled.tokens]
