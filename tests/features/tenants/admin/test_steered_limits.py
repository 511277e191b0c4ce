"""The successor of a steered response counts within limits as any other, and so does a stream without its client."""

import asyncio

import openai
import pytest

from service.process import Settings
from store.limits import Check, Limits
from tests.core.background.test_detached import left
from tests.core.background.test_steering import accepted, given_back, successor_of
from tests.features.tenants.admin.test_admin import administered, new_key
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed, submitted
from tests.support.service.inside import opened, scripted, serving
from tests.support.service.steered import Paused
from tests.support.waiting import until


async def test_a_successor_counts_within_the_limits_of_its_key(settings: Settings) -> None:
    paused = Paused(opened("One"))
    async with administered(settings, paused) as (inside, client):
        project = await client.admin.organization.projects.create(name="one")
        _, key = await new_key(client, project.id, extra_body={"limits": {"max_requests_per_1_minute": 1}})
        async with inside.client(key) as user, inside.http() as http:
            id = (await submitted(user)).id
            await paused.reached.wait()
            head = {"authorization": f"Bearer {key}"}
            assert (await http.post(f"/v1/responses/{id}/steer", json={"input": "On."}, headers=head)).is_success
            assert [code for _, code, _ in await given_back(user, id)] == ["successor_creation_failed"]


async def test_a_successor_is_counted_and_takes_the_place_of_the_one_before(settings: Settings) -> None:
    limits = {"max_requests_per_1_month": 2, "max_tokens_per_1_month": 5000, "max_parallel_responses": 1}
    limited = changed(settings, tenant_limits=limits)
    first, second = Paused(opened("One")), Paused(opened("Two"))
    async with serving(limited, scripted(first, second)) as inside, inside.client() as client:
        id = (await submitted(client, max_output_tokens=50)).id
        await first.reached.wait()
        await accepted(inside, id)
        last = await successor_of(client, id)
        await second.reached.wait()
        await accepted(inside, last)
        ((_, code, _),) = await given_back(client, last)
        assert code == "successor_creation_failed"
        took = [(await client.responses.retrieve(each)).usage for each in (id, last)]
        limiter, month = Limits(inside.store, held_seconds=30, usual_tokens=0), Check("all", "tokens", "month", 5000)

        async def used() -> int:
            found = await limiter.admit("default", inside.store.new_id(), [month], reads=0, writes=0)
            return 5000 - found.left[0].amount

        assert await until(used, wanted=lambda tokens: tokens == sum(each.total_tokens for each in took if each))


async def test_a_stream_that_its_client_leaves_is_limited_as_all_background_work(settings: Settings) -> None:
    go = asyncio.Event()
    limited = changed(settings, tenant_limits={"max_requests_per_1_minute": 2})
    async with serving(limited, scripted([opened("One, "), Stall(go)])) as inside, inside.client() as client:
        for _ in range(2):
            await left(client)
        with pytest.raises(openai.RateLimitError):
            await left(client)
        go.set()
