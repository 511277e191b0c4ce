"""Streams that go on without their client: followed on any replica, made once, and bounded as all background work."""

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI

from service.process import Settings
from tests.support.engine.scripted import Stall
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.background import changed, ended, said, streamed
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.process import MODEL

DETACHED = {"X-Harmonium-Detach": "true"}


async def left(client: AsyncOpenAI, **more: Any) -> tuple[str, int]:
    """The id of a detached stream whose client has gone behind its first delta, and the last number that it saw."""
    asked = {"extra_headers": DETACHED} | more
    stream = await client.responses.create(model=MODEL, input="hi", stream=True, **asked)
    async with stream:
        async for event in stream:
            if event.type == "response.created":
                id = event.response.id
            if event.type == "response.output_text.delta":
                return id, event.sequence_number
    raise AssertionError("the stream said nothing")


async def ask(client: AsyncOpenAI, headers: dict[str, str]) -> Any:
    """The raw answer to the same request with these headers."""
    create: Any = client.responses.with_raw_response.create
    return await create(model=MODEL, input="hi", stream=True, extra_headers=headers)


async def test_a_stream_goes_on_without_its_client_and_is_followed_on_another_replica(settings: Settings) -> None:
    go = asyncio.Event()
    engine, other = scripted([opened("One, "), Stall(go), [*answer("two.")[3:]]]), scripted([answer("Not said.")])
    here, there = changed(settings), changed(settings, worker_concurrency=1)
    async with serving(here, engine) as inside, inside.client() as client:
        id, number = await left(client)
        async with serving(there, other) as replica, replica.client() as back:
            under_way = await said(back, id, "One, ")
            assert (under_way.status, under_way.background) == ("in_progress", True)
            going_on = asyncio.create_task(streamed(replica, id, starting_after=number))
            go.set()
            rest = await going_on
            assert "".join(each["delta"] for each in rest if each["type"].endswith("text.delta")) == ", two."
            assert rest[0]["sequence_number"] == number + 1
            assert (await ended(back, id)).output_text == "One, two."
        assert check_stream(await streamed(inside, id))["status"] == "completed"
    assert len(engine.generations) == 1
    assert other.generations == []


async def test_with_a_key_it_is_made_once_and_a_repeat_is_told_its_events_with_the_header_or_without(
    settings: Settings,
) -> None:
    go = asyncio.Event()
    engine = scripted([opened("One, "), Stall(go), [*answer("two.")[3:]]], [answer("Not said.")])
    key = {"Idempotency-Key": "one"}
    async with serving(settings, engine) as inside, inside.client() as client:
        id, number = await left(client, extra_headers=DETACHED | key)
        for headers in (key, DETACHED | key):  # it runs still, and these clients go as well
            assert await left(client, extra_headers=headers) == (id, number)
        go.set()
        whole = (await ask(client, DETACHED | key)).parse()
        events = [event.to_dict() async for event in whole]
        assert (check_stream(events)["id"], engine.running) == (id, 0)
        assert (await client.responses.retrieve(id)).output_text == "One, two."
        again = await ask(client, key)
        assert [event.to_dict() async for event in again.parse()] == events
        assert again.headers["idempotent-replayed"] == "true"
    assert len(engine.generations) == 1


@pytest.mark.parametrize(
    ("header", "body"),
    [("true", {"stream": False}), ("TRUE", {"stream": True, "store": False}), ("false", {"stream": True})],
    ids=["no stream", "not stored", "said otherwise"],
)
async def test_what_nobody_could_come_back_to_is_an_ordinary_response(
    settings: Settings, header: str, body: dict[str, Any]
) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.http() as http:
        asked = {"model": MODEL, "input": "hi", **body}
        found = await http.post("/v1/responses", json=asked, headers={"X-Harmonium-Detach": header})
    last = json.loads(found.text.split("data: ")[-2]) if body["stream"] else {"response": found.json()}
    assert (last["response"]["status"], last["response"]["background"]) == ("completed", False)


async def test_a_header_that_says_neither_is_refused(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Not said.")])) as inside, inside.http() as http:
        refused = await http.post(
            "/v1/responses", json={"model": MODEL, "input": "hi"}, headers={"X-Harmonium-Detach": "yes"}
        )
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")
    assert "'yes'. Send true or false" in refused.json()["error"]["message"]
