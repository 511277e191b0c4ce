"""Cancelling a background response, from any replica and in every state; and deleting one, which waits for its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from service.engine.port import EngineRefused
from service.process import Settings
from store.redis.connection import connect
from tests.core.web.test_errors import UNKNOWN
from tests.support.engine.scripted import Die, ScriptedEngine, Stall
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.background import (
    changed,
    ended,
    opened_stream,
    reached,
    retrieved,
    said,
    streamed,
    submitted,
)
from tests.support.service.inside import Inside, answer, opened, scripted, serving
from tests.support.service.seen import ask
from tests.support.waiting import until

ABORT_SECONDS = 5.0
"""How long the engine may go on once a cancel was answered: less than until its lease is renewed, 10 s later."""

SPOKEN = [opened("Said so far."), Stall()]


class Replicas(NamedTuple):
    """Two services over one store: one that works, and one that only serves."""

    working: Inside
    serving: Inside
    engine: ScriptedEngine
    client: AsyncOpenAI
    other: AsyncOpenAI


@pytest.fixture
async def replicas(settings: Settings) -> AsyncIterator[Replicas]:
    """Services whose model says something once, and falls silent; and answers after that."""
    engine = scripted(SPOKEN, [answer("Still here.")])
    idle = changed(settings, embedded_worker=False)
    async with (
        serving(settings, engine) as working,
        serving(idle, scripted([])) as other,
        working.client() as client,
        other.client() as other_client,
    ):
        yield Replicas(working, other, engine, client, other_client)


async def cancelled(inside: Inside, id: str) -> httpx.Response:
    async with inside.http() as http:
        return await http.post(f"/v1/responses/{id}/cancel")


async def deleted(inside: Inside, id: str, **query: str) -> httpx.Response:
    async with inside.http() as http:
        return await http.delete(f"/v1/responses/{id}", params=query)


async def test_what_is_queued_is_cancelled_and_never_reaches_the_engine(settings: Settings) -> None:
    engine = scripted([answer("Hello.")])
    async with serving(changed(settings, embedded_worker=False), engine) as inside, inside.client() as client:
        async with opened_stream(client) as (id, _):
            found = await client.responses.cancel(id)
        assert (await client.responses.retrieve(id)).to_dict() == found.to_dict()
        assert check_stream(await streamed(inside, id)) == found.to_dict()
        async with serving(settings, engine) as working, working.client() as other:
            assert (await ended(other, (await submitted(other)).id)).status == "completed"
    assert (found.status, found.output, found.completed_at, found.error) == ("cancelled", [], None, None)
    assert [generation.id for generation in engine.generations].count(id) == 0
    assert len(engine.generations) == 1


async def test_what_is_under_way_is_cancelled_and_keeps_what_was_said(replicas: Replicas) -> None:
    id = (await submitted(replicas.client)).id
    await said(replicas.other, id, "Said so far")
    found = await replicas.other.responses.cancel(id)
    answered = asyncio.get_running_loop().time()
    await until(lambda: id in replicas.engine.aborted)
    assert replicas.engine.aborted[id] - answered < ABORT_SECONDS
    assert (found.status, found.completed_at, found.error, found.incomplete_details) == ("cancelled", None, None, None)
    assert (found.output_text, found.output[-1].status) == ("Said so far.", "incomplete")  # type: ignore[union-attr]
    assert found.usage
    assert found.usage.output_tokens == len(SPOKEN[0])  # type: ignore[arg-type]
    for each in (replicas.client, replicas.other):
        assert (await each.responses.retrieve(id)).to_dict() == found.to_dict()


async def test_all_who_follow_are_told_that_it_was_cancelled(replicas: Replicas) -> None:
    async with opened_stream(replicas.client) as (id, stream):
        followers = [asyncio.create_task(streamed(each, id)) for each in replicas[:2]]
        await said(replicas.client, id, "Said so far")
        found = await replicas.other.responses.cancel(id)
        rest: Any = [event async for event in stream]
        whole, other = await asyncio.gather(*followers)
    assert (rest[-1].type, rest[-1].response.status) == ("response.failed", "cancelled")
    assert check_stream(whole) == check_stream(other) == found.to_dict()


async def test_cancelled_by_many_at_once_it_ends_once(replicas: Replicas) -> None:
    async with opened_stream(replicas.client) as (id, _):
        await said(replicas.client, id, "Said so far")
        answers = await asyncio.gather(*[cancelled(each, id) for each in replicas[:2] for _ in range(10)])
        assert {(found.status_code, found.json()["status"]) for found in answers} == {(200, "cancelled")}
        assert check_stream(await streamed(replicas.serving, id))["status"] == "cancelled"


ENDS: dict[str, tuple[list[Any], str, str]] = {
    "completed": ([answer("Hello.")], "completed", "Cannot cancel a completed response."),
    "incomplete": ([opened("word " * 20)], "incomplete", "Cannot cancel a completed response. This one is incomplete."),
    "failed": ([Die(EngineRefused("no"))], "failed", "Cannot cancel a completed response. This one is failed."),
}


@pytest.mark.parametrize(("script", "status", "words"), ENDS.values(), ids=ENDS)
async def test_what_has_ended_can_not_be_cancelled(
    settings: Settings, script: list[Any], status: str, words: str
) -> None:
    async with serving(settings, scripted(script)) as inside, inside.client() as client:
        id = (await submitted(client, max_output_tokens=16)).id
        found = await ended(client, id)
        refused = await cancelled(inside, id)
        assert found.status == status
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == words
        assert (await client.responses.retrieve(id)).to_dict() == found.to_dict()


async def test_what_is_in_the_foreground_or_nowhere_can_not_be_cancelled(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        id = (await ask(client, input="hi")).id
        with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
            await client.responses.cancel(id)
        with pytest.raises(openai.NotFoundError):
            await client.responses.cancel(UNKNOWN)


@pytest.mark.parametrize("worker", [False, True], ids=["queued", "in_progress"])
async def test_what_is_under_way_can_not_be_deleted(settings: Settings, worker: bool) -> None:
    async with (
        serving(changed(settings, embedded_worker=worker), scripted(SPOKEN)) as inside,
        inside.client() as client,
    ):
        id = (await submitted(client)).id
        await reached(client, id, "in_progress" if worker else "queued")
        for query in ({}, {"tree": "true"}, {"erase": "true"}):
            refused = await deleted(inside, id, **query)
            assert refused.status_code == 400
            assert refused.json()["error"]["message"].startswith("Cannot delete an in-flight response.")
        assert (await client.responses.cancel(id)).status == "cancelled"
        assert (await deleted(inside, id)).status_code == 200


async def test_deleted_after_its_end_it_is_gone_with_its_events(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        async with opened_stream(client) as (id, _):
            await ended(client, id)
        redis = connect(settings.redis_url)
        async with contextlib.aclosing(redis):
            assert await redis.keys(f"{settings.redis_prefix}:*:log:{id[5:]}")
            assert (await deleted(inside, id)).json() == {"id": id, "object": "response.deleted", "deleted": True}
            await until(lambda: redis.keys(f"{settings.redis_prefix}:*{id[5:]}"), wanted=lambda keys: not keys)
        again = (await deleted(inside, id), await cancelled(inside, id), await retrieved(inside, id, stream="true"))
        assert [found.status_code for found in again] == [404, 404, 404]
