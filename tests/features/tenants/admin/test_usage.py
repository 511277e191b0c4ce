"""Usage over HTTP with the official SDK: exactly what the responses say that they took, by project, key and model."""

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.responses import ResponseUsage
from pydantic import SecretStr

from service.engine.port import EngineError
from service.process import Settings
from service.settings.core import parse_api_keys
from tests.features.proxy.conftest import standing_before
from tests.features.tenants.admin.test_admin import ADMIN, STATIC, admin, new_key
from tests.support.engine.scripted import Die, Script
from tests.support.service.background import changed, ended, submitted
from tests.support.service.inside import Inside, answer, scripted, serving, then, thought
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.waiting import until

HELLO: Script = [[*thought("Hm."), *then(answer("Hello."))]]


class Used(NamedTuple):
    """What somebody used."""

    requests: int = 0
    put_in: int = 0
    cached: int = 0
    put_out: int = 0


def sum_of(usages: Iterable[Any]) -> Used:
    """What responses say that they used, by the usage of each."""
    found = Used()
    for usage in usages:
        cached = usage.input_tokens_details.cached_tokens
        each = Used(1, usage.input_tokens, cached, usage.output_tokens)
        found = Used(*(one + other for one, other in zip(found, each, strict=True)))
    return found


@asynccontextmanager
async def counting(settings: Settings, *scripts: Script) -> AsyncIterator[tuple[Inside, AsyncOpenAI]]:
    """A service whose usage is asked for, and its administrator."""
    wanted = {"admin_key": SecretStr(ADMIN), "api_keys": parse_api_keys(f"acme:{STATIC}")}
    settings = changed(settings, **wanted, background_without_store=True)
    async with serving(settings, scripted(*(scripts or (HELLO,)))) as inside, admin(inside) as client:
        yield inside, client


async def used(client: AsyncOpenAI, **how: Any) -> dict[tuple[str | None, ...], Used]:
    """Usage since an hour ago by what it is grouped by, from all buckets."""
    page = await client.admin.organization.usage.completions(start_time=int(time.time()) - 3_600, **how)
    assert not page.has_more
    found: dict[tuple[str | None, ...], Used] = {}
    for bucket in page.data:
        for each in bucket.results:
            assert each.object == "organization.usage.completions.result"
            group = tuple(getattr(each, name) for name in how.get("group_by", ()))
            own = Used(each.num_model_requests, each.input_tokens, each.input_cached_tokens or 0, each.output_tokens)
            before = found.get(group, Used())
            found[group] = Used(*(one + other for one, other in zip(before, own, strict=True)))
    return found


async def test_usage_is_what_the_responses_say_however_they_were_asked_for(settings: Settings) -> None:
    async with counting(settings) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        id, value = await new_key(client, project.id)
        async with inside.client(value) as user:
            create = user.responses.create
            made = [await create(model=MODEL, input="Hi")]
            made.append(await create(model=MODEL, input="Again", previous_response_id=made[0].id))
            made.append(await create(model=MODEL, input="Hi", store=False))
            stream = await create(model=MODEL, input="Hi", stream=True)
            made += [event.response async for event in stream if event.type == "response.completed"]
            conversation = await user.conversations.create(items=[{"role": "user", "content": "I am Ada."}])
            made.append(await create(model=MODEL, input="Hi", conversation=conversation.id))
            for store in (True, False):
                queued = await submitted(user, "Hi", store=store)
                made.append(await ended(user, queued.id))
            usages = [each.usage for each in made]
            compacted = await user.responses.compact(model=MODEL, input="Hi")
            usages.append(compacted.usage)
            headers = {"authorization": f"Bearer {value}"}
            async with socket(inside.url, additional_headers=headers) as ws:
                answers = [await ws.answer("Hi", store=store) for store in (True, False)]
            usages += [ResponseUsage.model_validate(each["usage"]) for each in answers]
        assert len(usages) == 10
        assert await used(client) == {(): sum_of(usages)}
        by = await used(client, group_by=["project_id", "api_key_id", "model"])
        assert by == {(project.id, id, MODEL): sum_of(usages)}


async def test_who_used_what_is_told_apart(settings: Settings) -> None:
    async with counting(settings) as (inside, client):
        projects = client.admin.organization.projects
        one, other = await projects.create(name="one"), await projects.create(name="other")
        keys = {whose: await new_key(client, whose) for whose in (one.id, other.id)}
        (first, value), (_, others) = keys.values()
        second, second_value = await new_key(client, one.id)
        for key, times in ((value, 2), (second_value, 1), (others, 1), (STATIC, 3)):
            async with inside.client(key) as user:
                for _ in range(times):
                    await user.responses.create(model=MODEL, input="Hi")
        by_key = await used(client, group_by=["project_id", "api_key_id"])
        assert {group: each.requests for group, each in by_key.items()} == {
            (one.id, first): 2,
            (one.id, second): 1,
            (other.id, keys[other.id][0]): 1,
            ("acme", None): 3,
        }
        assert (await used(client))[()].requests == 7
        assert (await used(client, project_ids=[one.id, "acme"]))[()].requests == 6
        assert (await used(client, api_key_ids=[second]))[()].requests == 1
        await projects.api_keys.delete(first, project_id=one.id)
        assert (await used(client, api_key_ids=[first]))[()].requests == 2


async def test_what_failed_is_counted_where_the_model_said_something(settings: Settings) -> None:
    nothing: Script = [Die(EngineError("gone"))]
    half: Script = [answer("Hello.")[:4], Die(EngineError("gone"))]
    async with counting(settings, nothing, half, half) as (inside, client), inside.client(STATIC) as user:
        with pytest.raises(openai.APIStatusError):
            await user.responses.create(model=MODEL, input="Hi")
        assert await used(client) == {}
        made = await user.responses.create(model=MODEL, input="Hi")
        unstored = await user.responses.create(model=MODEL, input="Hi", store=False)
        assert {made.status, unstored.status} == {"failed"}
        assert await used(client) == {(): sum_of([made.usage, unstored.usage])}


async def test_what_is_passed_on_counts_as_its_server_says(settings: Settings) -> None:
    wanted = {"admin_key": SecretStr(ADMIN), "api_keys": parse_api_keys(f"acme:{STATIC}")}
    async with (
        standing_before(settings, **wanted) as behind,
        admin(behind.inside) as client,
        behind.inside.client(STATIC) as user,
    ):
        said = await user.chat.completions.create(model="", messages=[{"role": "user", "content": "Hi"}])
        assert said.usage is not None
        told = await until(lambda: used(client, group_by=["project_id", "model"]), 10)
        ((group, each),) = told.items()
        assert group[0] == "acme"
        assert (each.requests, each.put_in, each.put_out) == (1, said.usage.prompt_tokens, said.usage.completion_tokens)
