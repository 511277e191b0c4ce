"""The queue as its users see it: how much may wait, who starts next, and for how long one may wait and run."""

import asyncio

import openai
import pytest

from service.engine.port import Generation
from service.process import Settings
from tests.support.engine.scripted import Stall, Step
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.background import changed, ended, opened_stream, streamed, submitted
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.seen import ask
from tests.support.store.counted import usage
from tests.support.waiting import until


@pytest.mark.parametrize("stream", [False, True])
async def test_a_queue_that_is_full_says_when_to_come_back(settings: Settings, stream: bool) -> None:
    narrow = changed(settings, embedded_worker=False, max_queued_responses=2)
    async with serving(narrow, scripted([answer("Hello.")])) as inside, inside.client() as client:
        parent = (await ask(client, input="hi")).id
        queued = [(await submitted(client)).id for _ in range(2)]
        with pytest.raises(openai.RateLimitError, match="2 background responses are waiting") as refusal:
            await submitted(client, "And?", parent, stream=stream)
        assert (refusal.value.type, refusal.value.code) == ("rate_limit_error", "queue_full")
        headers = refusal.value.response.headers
        assert (headers["retry-after"], headers["x-should-retry"]) == ("5", "true")
        assert (await usage(inside.store)).responses == 3
        await client.responses.delete(parent)
        assert (await usage(inside.store)).tombstones == 0  # nobody holds on to it
        await client.responses.cancel(queued[0])
        assert (await submitted(client)).status == "queued"


async def test_no_more_run_at_once_than_a_worker_may_and_each_runs_once(settings: Settings) -> None:
    most, go = 0, asyncio.Event()

    def busy(generation: Generation) -> list[Step]:
        nonlocal most
        most = max(most, engine.running + 1)
        return [Stall(go), *[[token] for token in answer("One two three.")]]

    engine = scripted(busy)
    async with serving(changed(settings, worker_concurrency=4), engine) as inside, inside.client() as client:
        queued = await asyncio.gather(*[submitted(client) for _ in range(40)])
        await until(lambda: engine.running == 4)
        go.set()
        found = [await ended(client, each.id) for each in queued]
    assert {each.output_text for each in found} == {"One two three."}
    assert sorted(generation.id for generation in engine.generations) == sorted(each.id for each in queued)
    assert most == 4


async def test_what_runs_for_too_long_fails_and_keeps_what_was_said(settings: Settings) -> None:
    engine = scripted([opened("Slow"), Stall()])
    async with serving(changed(settings, max_run_seconds=1.5), engine) as inside, inside.client() as client:
        async with opened_stream(client) as (id, _):
            found = await ended(client, id)
        assert check_stream(await streamed(inside, id)) == found.to_dict()
    assert (found.status, found.output_text, found.completed_at) == ("failed", "Slow", None)
    assert found.error
    assert "longer than 1.5 s" in found.error.message
    assert len(engine.aborted) == 1


async def test_what_waits_for_too_long_fails_without_a_token(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = scripted([answer("Hello.")])
    idle = changed(settings, embedded_worker=False)
    async with serving(idle, engine) as inside, inside.client() as client, opened_stream(client) as (id, _):
        assert (await client.responses.retrieve(id)).status == "queued"
    monkeypatch.setattr("service.background.attempt.MAX_QUEUED_SECONDS", 0.001)
    async with serving(settings, engine) as inside, inside.client() as client:
        found = await ended(client, id)
        assert check_stream(await streamed(inside, id)) == found.to_dict()
    assert found.status == "failed"
    assert found.error
    assert "waited for longer than 0.001 s" in found.error.message
    assert engine.generations == []
