"""Requests that come again with their key, through the official SDK: made once, and told again."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from service.engine.port import EngineUnavailable, Generation
from service.process import Settings, load_settings
from store.keys import BY_HAND_MARK, CONVERSATION_MARK, NO_RESPONSES, mark_of
from tests.support.engine.scripted import Die, Script, ScriptedEngine, Stall
from tests.support.service.inside import Inside, answer, opened, scripted, serving
from tests.support.service.listed import said
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL

KEY = "the key of a test"

SECONDS = 20.0


def body_of(**more: object) -> bytes:
    return json.dumps({"model": MODEL, "input": "hi", **more}).encode()


BODY = body_of()


def keyed(key: str = KEY) -> dict[str, str]:
    return {"Idempotency-Key": key}


async def ask(client: AsyncOpenAI, key: str = KEY, **body: Any) -> Any:
    body = {"model": MODEL, "input": "hi", **body}
    return await client.responses.create(extra_headers=keyed(key), **body)


async def streamed(client: AsyncOpenAI, key: str = KEY, **body: Any) -> list[Any]:
    stream = await ask(client, key, stream=True, **body)
    async with stream:
        return [event async for event in stream]


async def stored(inside: Inside) -> list[str]:
    async with inside.store.server.operation() as operation:
        _, keys = await operation.command(
            "SCAN", 0, "MATCH", f"{inside.store.keyspace.prefix}:*:node:*", "COUNT", 1_000_000
        )
    return [key.rpartition(b":")[2].decode() for key in keys]


async def responses(inside: Inside) -> list[str]:
    return [f"resp_{digits}" for digits in await stored(inside) if mark_of(digits) not in NO_RESPONSES]


async def known(inside: Inside) -> int:
    async with inside.store.server.operation() as operation:
        return await operation.command("HLEN", f"{inside.store.keyspace.prefix}:{{00}}:keyed:default")


class Held:
    """A script that says something, and the rest once it may."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may = asyncio.Event()

    def __call__(self, generation: Generation) -> Script:
        self.begun.set()
        return [opened("Said "), Stall(self.may), *([token] for token in answer("so far.")[3:])]


@asynccontextmanager
async def one(settings: Settings, *scripts: Any) -> AsyncIterator[tuple[Inside, AsyncOpenAI, ScriptedEngine]]:
    engine = scripted(*scripts or ([answer("Hello.")],))
    async with serving(settings, engine) as inside, inside.client() as client:
        yield inside, client, engine


async def test_a_repeat_gets_the_stored_answer_byte_for_byte(settings: Settings) -> None:
    async with one(settings) as (inside, client, engine):
        first, second = [
            await client.responses.with_raw_response.create(model=MODEL, input="hi", extra_headers=keyed())
            for _ in range(2)
        ]
        assert first.http_response.content == second.http_response.content
        assert "idempotent-replayed" not in first.headers
        assert second.headers["idempotent-replayed"] == "true"
        assert len(engine.generations) == 1
        assert await responses(inside) == [first.parse().id]


async def test_a_repeat_of_a_stream_gets_its_response_as_a_stream(settings: Settings) -> None:
    async with one(settings) as (inside, client, engine):
        first, second = await streamed(client), await streamed(client)

        assert [event.type for event in second] == list(dict.fromkeys(event.type for event in first))
        assert [event.sequence_number for event in second] == list(range(len(second)))
        assert [event.delta for event in second if event.type == "response.output_text.delta"] == ["Hello."]
        assert second[-1].response == first[-1].response
        assert len(engine.generations) == 1
        assert await responses(inside) == [first[-1].response.id]


async def test_a_repeat_of_a_background_stream_gets_all_its_events(settings: Settings) -> None:
    held = Held()
    async with one(settings, held) as (inside, client, _):
        stream = await ask(client, background=True, stream=True)
        async with stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    break
        again = asyncio.create_task(streamed(client, background=True))
        held.may.set()
        events, after = await again, await streamed(client, background=True)

        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[-1].type == "response.completed"
        assert after == events
        assert await responses(inside) == [events[-1].response.id]


@pytest.mark.parametrize("stream", [False, True])
async def test_many_at_once_at_two_services_get_one_response(settings: Settings, stream: bool) -> None:
    held = Held()
    async with one(settings, held) as (inside, here, engine), one(settings, held) as (_, there, other):
        asking = [asyncio.create_task(streamed(client) if stream else ask(client)) for client in (here, there) * 10]
        await asyncio.wait_for(held.begun.wait(), SECONDS)
        held.may.set()
        found = [each[-1].response if stream else each for each in await asyncio.gather(*asking)]

        assert len(engine.generations) + len(other.generations) == 1
        assert {each.id for each in found} == {*await responses(inside)}
        assert {each.output_text for each in found} == {"Said so far."}
        assert all(each == found[0] for each in found)


async def test_a_key_with_another_body_is_refused_and_no_sdk_tries_again(settings: Settings) -> None:
    async with one(settings) as (inside, client, _):
        await ask(client)
        answers: list[httpx.Response] = []
        patient = client.with_options(max_retries=2)
        patient._client.event_hooks["response"].append(_noting(answers))
        with pytest.raises(openai.UnprocessableEntityError) as refusal:
            await ask(patient, input="something else")
        assert (refusal.value.code, refusal.value.param) == ("idempotency_key_reused", None)
        assert len(answers) == 1
        assert len(await responses(inside)) == 1


def _noting(answers: list[httpx.Response]) -> Any:
    async def note(response: httpx.Response) -> None:
        answers.append(response)

    return note


async def test_tenants_see_nothing_of_each_others_keys(settings: Settings) -> None:
    keys = f"acme:{ACME_KEY},globex:{GLOBEX_KEY}"
    settings = load_settings(**settings.model_dump(include=settings.model_fields_set), api_keys=keys)
    async with (
        serving(settings, scripted([answer("Hello.")])) as inside,
        inside.client(ACME_KEY) as acme,
        inside.client(GLOBEX_KEY) as globex,
    ):
        first, other = await ask(acme), await ask(globex, input="another body")
        assert (await ask(acme)).id == first.id
        assert (await ask(globex, input="another body")).id == other.id != first.id


async def test_what_was_refused_or_failed_before_anything_was_said_is_made_again(settings: Settings) -> None:
    async with one(settings, [Die(EngineUnavailable("away"))], [answer("Hello.")]) as (inside, client, _):
        with pytest.raises(openai.BadRequestError):
            await ask(client, temperature=7)
        with pytest.raises(openai.InternalServerError):
            await ask(client)
        assert await known(inside) == 0
        assert (await ask(client)).output_text == "Hello."
        assert len(await responses(inside)) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_not_stored_is_not_told_again_and_says_so(settings: Settings, stream: bool) -> None:
    held = Held()
    async with one(settings, held) as (inside, client, engine):
        asking = asyncio.create_task(
            streamed(client, store=False) if stream else ask(client, store=False)  # type: ignore[arg-type]
        )
        await asyncio.wait_for(held.begun.wait(), SECONDS)
        for ended in (False, True):
            if ended:
                held.may.set()
                await asking
            with pytest.raises(openai.UnprocessableEntityError) as refusal:
                await ask(client, store=False, **({"stream": True} if stream else {}))
            assert refusal.value.code == "idempotency_response_not_stored"
        assert await responses(inside) == []
        assert len(engine.generations) == 1


@asynccontextmanager
async def unheard(inside: Inside, body: bytes) -> AsyncIterator[asyncio.StreamWriter]:
    """A request with a key, whose client hangs up at the end of the block."""
    _, writer = await asyncio.open_connection("127.0.0.1", inside.port)
    head = f"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nidempotency-key: {KEY}"
    writer.write(f"{head}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    yield writer
    writer.transport.abort()


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_stored_is_made_to_its_end_though_its_client_hangs_up(settings: Settings, stream: bool) -> None:
    held, body = Held(), body_of(stream=stream)
    async with one(settings, held) as (inside, _, engine):
        async with unheard(inside, body):
            await asyncio.wait_for(held.begun.wait(), SECONDS)
        again = asyncio.create_task(post(inside, body))
        held.may.set()
        text = (await again).text

        assert "Said so far." in text
        assert '"status":"completed"' in text
        assert engine.aborted == {}
        assert len(engine.generations) == len(await responses(inside)) == 1


async def test_who_waits_for_too_long_is_told_to_come_again_and_repeats_are_counted(settings: Settings) -> None:
    held = Held()
    brief = load_settings(**settings.model_dump(include=settings.model_fields_set), request_seconds=3.0)
    async with one(settings, held) as (_, client, _), one(brief) as (inside, other, engine), inside.http() as http:
        making = asyncio.create_task(ask(client))
        await asyncio.wait_for(held.begun.wait(), SECONDS)
        with pytest.raises(openai.InternalServerError, match="still running") as refusal:
            await ask(other)
        assert (refusal.value.status_code, "retry-after" in refusal.value.response.headers) == (503, True)
        held.may.set()
        id = (await making).id
        assert (await ask(other)).id == id
        assert engine.generations == []
        assert 'harmonium_idempotent_repeats_total{outcome="returned"} 1.0' in (await http.get("/metrics")).text


async def post(inside: Inside, body: bytes = BODY, route: str = "/v1/responses") -> httpx.Response:
    async with inside.http() as raw:
        return await raw.post(route, content=body, headers=keyed() | {"content-type": "application/json"})


async def test_a_response_that_was_deleted_since_is_not_found_and_not_made_again(settings: Settings) -> None:
    async with one(settings) as (inside, client, engine):
        first = await ask(client)
        await client.responses.delete(first.id)
        for stream in (False, True):
            with pytest.raises(openai.NotFoundError):
                await (streamed(client, "streamed") if stream else ask(client))
            if not stream:
                await client.responses.delete((await streamed(client, "streamed"))[-1].response.id)
        assert await responses(inside) == []
        assert len(engine.generations) == 2


async def test_what_can_be_no_key_is_refused_by_each_route_that_takes_one(settings: Settings) -> None:
    routes = ["/v1/responses", f"/v1/responses/resp_{'0' * 48}/steer"]
    routes += ["/v1/conversations", f"/v1/conversations/conv_{'0' * 48}/items"]
    async with serving(settings) as inside, inside.http() as raw:
        for route in routes:
            for keys in (["a" * 256], ["a\tb"], [""], ["a", "a"]):
                headers = [("content-type", "application/json"), *(("idempotency-key", key) for key in keys)]
                refused = await raw.post(route, content=BODY, headers=headers)
                error = refused.json()["error"]
                assert (refused.status_code, error["code"], error["param"]) == (400, "invalid_idempotency_key", None)


# --- conversations ---

ITEM: Any = {"role": "user", "content": "My name is Ada."}


async def begin(client: AsyncOpenAI, key: str = "a conversation", **body: Any) -> Any:
    return await client.conversations.create(extra_headers=keyed(key), **body)


async def add(client: AsyncOpenAI, id: str, key: str = "items") -> Any:
    return await client.conversations.items.create(id, items=[ITEM, ITEM], extra_headers=keyed(key))


async def marked(inside: Inside, mark: str) -> int:
    return sum(mark_of(digits) == mark for digits in await stored(inside))


async def test_items_are_added_once(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await client.conversations.create()).id
        first, *others = await asyncio.gather(*(add(client, id) for _ in range(10)))

        assert all(other == first for other in others)
        assert len(first.data) == 2
        assert await said(client, id) == [("user", "My name is Ada.")] * 2
        await add(client, id, "others")
        assert len(await said(client, id)) == 4


async def test_a_conversation_is_begun_once(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        found = await asyncio.gather(*(begin(client, items=[ITEM], metadata={"a": "b"}) for _ in range(10)))

        assert len({each.id for each in found}) == 1
        assert await marked(inside, CONVERSATION_MARK) == await marked(inside, BY_HAND_MARK) == 1
        assert await said(client, found[0].id) == [("user", "My name is Ada.")]
        with pytest.raises(openai.UnprocessableEntityError):
            await begin(client)


async def test_items_that_are_erased_since_are_not_told_again(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await client.conversations.create()).id
        for left, gone in zip((1, 0), (await add(client, id)).data, strict=True):
            await client.conversations.items.delete(gone.id, conversation_id=id, extra_query={"erase": True})
            again = await add(client, id)
            assert (len(again.data), len(await said(client, id))) == (left, left)
            assert gone.id not in again.to_json()


async def test_what_is_gone_since_is_not_found(settings: Settings) -> None:
    async with serving(settings) as inside, inside.client() as client:
        id = (await begin(client)).id
        await add(client, id)
        await client.conversations.delete(id)
        for again in (begin(client), add(client, id)):
            with pytest.raises(openai.NotFoundError):
                await again
