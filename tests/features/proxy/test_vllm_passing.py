"""Requests in vLLM's own API, passed on to stand-ins for its servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from service.engine.port import EngineError, EngineUnavailable, Passed, PassedRefusal, PassedUsage
from service.features.proxy import passing
from service.features.proxy.passing import PassingEngine
from tests.support.engine.connected import access_to, scripted
from tests.support.engine.misbehaviour import Instead
from tests.support.engine.standin import standing_in
from tests.support.engine.standing import Standing, standing
from tests.support.llama.standin import LlamaStandin

CHAT = "/v1/chat/completions"
JSON = (("content-type", "application/json"),)


def asking(said: str = "hello you", **members: Any) -> Passed:
    """A request for a chat completion."""
    given = {"messages": [{"role": "user", "content": said}], **members}
    raw = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in given.items()}
    return Passed("req_1", CHAT, raw, cache_salt="salt", affinity="a", trace=(("traceparent", "t"),))


@asynccontextmanager
async def connected(*servers: Standing, **access: Any) -> AsyncIterator[PassingEngine]:
    """A started engine before these servers, until the end of the block."""
    engine = PassingEngine(servers[0].kind, access_to([server.url for server in servers], **access))
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


async def whole(engine: PassingEngine, passed: Passed) -> bytes:
    async with engine.pass_on(passed) as reply:
        return b"".join([piece async for piece in reply.pieces()])


def refusing(status: int, body: bytes) -> dict[str, Instead]:
    """A server that answers with this error."""
    return {CHAT: Instead((body,), status, headers=JSON)}


@pytest.mark.parametrize("status", [400, 405, 413])
async def test_what_the_server_refuses_is_told_in_its_words(status: int) -> None:
    said = b'{"error":{"message":"No, said 127.0.0.1:PORT with sk-secret.","param":"temperature","code":400}}'
    async with standing_in(scripted()) as server, connected(server, api_key="sk-secret") as engine:
        server.instead = refusing(status, said.replace(b"PORT", str(server.port).encode()))
        with pytest.raises(PassedRefusal, match=r"^No, said … with ….$") as refused:
            await whole(engine, asking())
    assert (refused.value.status, refused.value.param) == (404 if status == 405 else status, "temperature")


@pytest.mark.parametrize("status", [301, 401, 429, 500])
async def test_what_is_wrong_between_the_server_and_us_names_nothing_of_it(status: int) -> None:
    said = b'{"error":{"message":"connect to 10.0.0.3 failed"}}'
    async with standing_in(scripted(), instead=refusing(status, said)) as server, connected(server) as engine:
        with pytest.raises(EngineError) as raised:
            await whole(engine, asking())
        assert "10.0.0.3" not in str(raised.value)
        assert isinstance(raised.value, EngineUnavailable) is (status not in (301, 500))
        await engine.check()  # a single request says nothing of the server


@pytest.mark.parametrize("head", [{"content-type": "text/html"}, dict(JSON) | {"content-encoding": "gzip"}])
async def test_an_answer_that_nobody_asked_for_is_none(head: dict[str, str]) -> None:
    instead = {CHAT: Instead((b"x",), headers=tuple(head.items()))}
    async with standing_in(scripted(), instead=instead) as server, connected(server) as engine:
        with pytest.raises(EngineError, match="neither JSON nor a stream"):
            await whole(engine, asking())


async def test_a_stream_that_becomes_one_answer_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of llama.cpp, whose answers are streams alone."""
    monkeypatch.setattr(passing, "MAX_STREAM_BYTES", 99)
    events = Instead((b'data: {"choices":[]}\n\n',) * 9, headers=(("content-type", "text/event-stream"),))
    async with standing(LlamaStandin(scripted())) as server, connected(server) as engine:
        server.instead[CHAT] = events
        with pytest.raises(EngineError, match="more than 99 bytes of one answer"):
            await whole(engine, asking())


async def test_another_server_is_asked_where_one_is_full_or_gone() -> None:
    full = refusing(503, b"{}")
    async with (
        standing_in(scripted(), instead=full) as first,
        standing_in(scripted()) as second,
        standing_in(scripted()) as third,
        connected(first, second, third) as engine,
    ):
        await third.die()
        for affinity in "abcdefgh":
            assert await whole(engine, msgspec.structs.replace(asking(), affinity=affinity))
        await second.die()
        with pytest.raises(EngineUnavailable):
            await whole(engine, asking())


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 1000])
async def test_lines_of_a_stream_may_end_as_the_standard_allows_wherever_they_are_cut(end: bytes, size: int) -> None:
    sent = b': ping\n\ndata: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
    cut = [sent.replace(b"\n", end)[at : at + size] for at in range(0, 2 * len(sent), size)]
    events = Instead(tuple(cut), headers=(("content-type", "text/event-stream"),))
    async with (
        standing_in(scripted(), instead={CHAT: events}) as server,
        connected(server) as engine,
        engine.pass_on(asking(stream=True)) as reply,
    ):
        said = b"".join([piece async for piece in reply.pieces()])
    assert said == sent
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (3, 2)


async def test_tokens_that_a_cache_was_given_are_tokens_of_the_prompt() -> None:
    used = b'{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":5,"output_tokens":2}'
    instead = {CHAT: Instead((b'{"usage":' + used + b"}",), headers=JSON)}
    async with (
        standing_in(scripted(), instead=instead) as server,
        connected(server) as engine,
        engine.pass_on(asking()) as reply,
    ):
        assert [piece async for piece in reply.pieces()]
    assert reply.usage == PassedUsage(12, 5, 2)
