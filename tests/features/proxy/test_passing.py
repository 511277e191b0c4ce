"""Chat Completions, completions and embeddings through the service: what the server and the client get, and no more."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai import APIError, AsyncOpenAI, BadRequestError, InternalServerError, RateLimitError

from service.process import Settings
from service.settings.core import ApiKey
from store.limits import Check, Limits
from tests.features.proxy.conftest import ENGINE_KEY, Behind, standing_before
from tests.support.engine.chatting import FOR_EVER
from tests.support.engine.connected import scripted
from tests.support.engine.misbehaviour import Instead, Then
from tests.support.engine.standin import Asked, Standin, standing_in
from tests.support.service.background import changed
from tests.support.service.inside import Inside
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, ServiceProcess
from tests.support.store.counted import usage
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
EVENTS = (("content-type", "text/event-stream"),)
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[]}\n\n'


async def chat(client: AsyncOpenAI, said: str = "hello you", *, model: str = "talker", **more: Any) -> Any:
    return await client.chat.completions.create(model=model, messages=[{"role": "user", "content": said}], **more)


def passed(server: Standin) -> list[Asked]:
    """What a server was asked by others than us."""
    return [each for each in server.asked if each.path == CHAT]


async def test_a_chat_completion_is_the_servers_and_nothing_is_stored(behind: Behind) -> None:
    async with behind.inside.client() as client:
        answer = await chat(client, temperature=0.5, seed=7)
    assert answer.choices[0].message.content == "hello you"
    assert answer.usage.prompt_tokens == 2
    body = passed(behind.server)[-1].body
    assert (body["temperature"], body["seed"], body["model"]) == (0.5, 7, "talker")
    assert (await usage(behind.inside.store)).responses == 0


async def test_a_stream_is_passed_on_event_by_event(behind: Behind) -> None:
    async with behind.inside.client() as client:
        stream = await chat(client, FOR_EVER, stream=True)
        said = [(await anext(aiter(stream))).choices[0].delta.content for _ in range(4)]
        assert said == ["for ", "ever ", "again ", "again "]
        assert behind.server.running == 1
        await stream.close()
        await until(lambda: behind.server.running == 0)


async def test_completions_and_embeddings_are_passed_on(behind: Behind) -> None:
    async with behind.inside.client() as client:
        completion = await client.completions.create(model="talker", prompt="a b", max_tokens=9)
        assert completion.choices[0].text == "a b"
        embedded = await client.embeddings.create(model="talker", input=["abc", "x"], encoding_format="float")
        assert [each.embedding for each in embedded.data] == [[3.0], [1.0]]


async def test_the_server_gets_our_key_and_nothing_of_the_clients(behind: Behind) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"authorization": "Bearer sk-client", "cookie": "a=b", "x-forwarded-for": "1.2.3.4", "traceparent": trace}
    async with behind.inside.http() as http:
        body = {"model": "talker", "messages": [{"role": "user", "content": "hi"}]}
        answer = await http.post(CHAT, json=body, headers=headers)
    sent = passed(behind.server)[-1].headers
    assert sent["authorization"] == f"Bearer {ENGINE_KEY}"
    assert sent["traceparent"] == trace
    assert sent["x-request-id"] == answer.headers["x-request-id"]
    assert not {"cookie", "x-forwarded-for"} & sent.keys()
    assert answer.headers["server"] == "uvicorn"
    assert answer.headers["openai-version"] == "2020-10-01"


async def test_tenants_have_salts_of_their_own_whatever_they_say(settings: Settings) -> None:
    secret = type(settings.engine_api_key)
    keys = (ApiKey("acme", secret(ACME_KEY)), ApiKey("globex", secret(GLOBEX_KEY)))
    async with standing_before(settings, api_keys=keys) as behind:
        for key in (ACME_KEY, GLOBEX_KEY):
            async with behind.inside.client(key) as client:
                await chat(client)
                await chat(client, extra_body={"cache_salt": "same"})
                with pytest.raises(BadRequestError, match="overtake other tenants"):
                    await chat(client, extra_body={"priority": -1})
                await chat(client, service_tier="priority")
    salts = [each.body["cache_salt"] for each in passed(behind.server)]
    assert len(set(salts)) == 4  # the last of each is its first again
    assert {each.body["priority"] for each in passed(behind.server)} == {0}


async def test_what_the_server_refuses_is_an_error_of_the_sdk(behind: Behind) -> None:
    said = b'{"error":{"message":"temperature must be in [0, 2]","type":"Bad","param":"temperature","code":400}}'
    behind.server.instead[CHAT] = Instead((said,), 400, headers=(("content-type", "application/json"),))
    async with behind.inside.client() as client:
        with pytest.raises(BadRequestError) as refused:
            await chat(client)
    assert (refused.value.param, refused.value.type) == ("temperature", "invalid_request_error")
    assert "temperature must be in [0, 2]" in refused.value.message


async def test_a_server_that_is_gone_is_a_503_to_be_tried_again(behind: Behind) -> None:
    await behind.server.die()
    async with behind.inside.client() as client:
        with pytest.raises(InternalServerError) as failed:
            await chat(client, stream=True)
    assert failed.value.status_code == 503
    assert failed.value.response.headers["retry-after"] == "1"
    assert str(behind.server.port) not in failed.value.message


@pytest.mark.parametrize(
    "instead",
    [
        Instead((CHUNK,), then=Then.CUT, headers=EVENTS),
        Instead((CHUNK,), headers=EVENTS),
        Instead((CHUNK, b'data: {"error":{"message":"CUDA","code":500}}\n\ndata: [DONE]\n\n'), headers=EVENTS),
        Instead((CHUNK, b"data: " + b"x" * (1 << 20)), then=Then.AGAIN, headers=EVENTS),
    ],
    ids=["cut", "ended", "failed", "endless"],
)
async def test_a_stream_that_the_server_breaks_off_ends_in_an_error(behind: Behind, instead: Instead) -> None:
    behind.server.instead[CHAT] = instead
    async with behind.inside.client() as client:
        stream = aiter(await chat(client, stream=True))
        assert (await anext(stream)).id == "c"
        with pytest.raises(APIError) as failed:
            await anext(stream)
    assert failed.value.type == "server_error"
    assert "CUDA" not in failed.value.message


async def test_an_answer_that_takes_too_long_is_told(settings: Settings) -> None:
    async with standing_before(settings, request_seconds=1.0) as behind, behind.inside.client() as client:
        with pytest.raises(InternalServerError) as whole:
            await chat(client, FOR_EVER)
        assert (whole.value.status_code, whole.value.code) == (504, "timeout")
        stream = await chat(client, FOR_EVER, stream=True)
        with pytest.raises(APIError, match=r"longer than 1 s") as streamed:
            assert [chunk async for chunk in stream] == []
        assert streamed.value.code == "timeout"
        await until(lambda: behind.server.running == 0)


async def test_nothing_is_passed_on_where_the_operator_says_so(settings: Settings) -> None:
    async with standing_before(settings, chats="refuse") as behind, behind.inside.http() as http:
        for path in (CHAT, "/v1/completions", "/v1/embeddings"):
            assert (await http.post(path, json={"model": "talker"})).status_code == 404


async def test_what_is_passed_on_is_limited_as_all_else(settings: Settings) -> None:
    limits = {"max_requests_per_1_minute": 2, "max_tokens_per_1_month": 60_000}
    async with standing_before(changed(settings, tenant_limits=limits)) as behind, behind.inside.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="talker", messages=[{"role": "user", "content": "hello you"}]
        )
        assert raw.headers["x-ratelimit-remaining-requests"] == "1"
        await until(lambda: left(behind), wanted=lambda tokens: tokens == 60_000 - raw.parse().usage.total_tokens)
        await chat(client)
        with pytest.raises(RateLimitError, match=r"talker in project default on requests per min"):
            await chat(client)


async def left(behind: Behind) -> int:
    """How many tokens of the month are left."""
    store = behind.inside.store
    limits = Limits(store, held_seconds=60, usual_tokens=0)
    month = Check("all", "tokens", "month", 60_000)
    found = await limits.admit("default", store.new_id(), [month], reads=0, writes=0)
    return found.left[0].amount


async def test_a_kill_amid_streams_leaves_no_work_on_the_server(start: Callable[..., ServiceProcess]) -> None:
    async with standing_in(scripted(), api_key=ENGINE_KEY) as server:
        service = await asyncio.to_thread(start, engine="vllm", engine_url=server.url, engine_api_key=ENGINE_KEY)
        async with httpx.AsyncClient(base_url=service.url) as http:
            body = {"model": "talker", "messages": [{"role": "user", "content": FOR_EVER}]}
            asked = [asyncio.create_task(http.post(CHAT, json=body | {"stream": kind})) for kind in (True, True, False)]
            await until(lambda: server.running == 3)
            await asyncio.to_thread(service.kill)
            await until(lambda: server.running == 0)
            broken = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, httpx.HTTPError) for each in broken)


async def test_no_other_path_gets_to_the_server(behind: Behind) -> None:
    before = len(behind.server.asked)
    for end in ("/../../metrics", "/%2e%2e/%2e%2e/health", "%00", ";x=1"):
        assert await _status(behind.inside, f"POST {CHAT}{end} HTTP/1.1") in (400, 404), end
    for path in ("/v1//chat/completions", f"/open-responses{CHAT}", f"http://127.0.0.1:1{CHAT}x"):
        assert await _status(behind.inside, f"POST {path} HTTP/1.1") in (400, 404), path
    assert [each.path for each in behind.server.asked[before:] if each.path not in ("/health", "/v1/models")] == []


async def test_nobody_gets_to_the_server_without_a_key(settings: Settings) -> None:
    secret = type(settings.engine_api_key)
    async with standing_before(settings, api_keys=(ApiKey("acme", secret(ACME_KEY)),)) as behind:
        for key in ("", "wrong", ENGINE_KEY):
            line = f"POST {CHAT} HTTP/1.1"
            assert await _status(behind.inside, line, f"authorization: Bearer {key}") == 401
        assert not [each for each in behind.server.asked if each.path == CHAT]


async def _status(inside: Inside, line: str, *headers: str) -> int:
    """The status of the answer to a request that no client would let through."""
    reader, writer = await asyncio.open_connection("127.0.0.1", inside.port)
    body = json.dumps({"model": "talker", "messages": [{"role": "user", "content": "hi"}]})
    head = [line, "host: localhost", "content-type: application/json", f"content-length: {len(body)}", *headers]
    writer.write("\r\n".join([*head, "connection: close", "", body]).encode())
    said = await reader.read()
    writer.close()
    return int(said.split(b" ", 2)[1])


async def test_several_answers_are_as_many_requests(settings: Settings) -> None:
    async with standing_before(settings, max_concurrent_requests=4) as behind, behind.inside.client() as client:
        await chat(client, n=4)
        with pytest.raises(InternalServerError, match="MAX_CONCURRENT_REQUESTS"):
            await chat(client, n=5)
