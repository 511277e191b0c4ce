"""Limits of projects and keys, and weights of projects, by the admin API with the official SDK."""

import asyncio

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from service.process import Settings
from service.settings.core import parse_api_keys
from tests.features.tenants.admin.test_admin import ADMIN, STATIC, admin, administered, new_key
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.scraped import Scraped
from tests.support.waiting import until

HEAD = {"authorization": f"Bearer {ADMIN}"}


async def answered(client: AsyncOpenAI) -> bool:
    """Whether a response is made; False where a limit is reached."""
    try:
        await client.responses.create(model=MODEL, input="Hi")
    except openai.RateLimitError:
        return False
    return True


async def limited(inside: Inside, client: AsyncOpenAI, project: str, id: str, **limits: int) -> str:
    _, value = await new_key(client, project)
    await client.admin.organization.projects.rate_limits.update_rate_limit(id, project_id=project, **limits)
    return value


async def test_a_project_is_limited_and_no_other(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        projects = client.admin.organization.projects
        one, other = await projects.create(name="one"), await projects.create(name="other")
        value = await limited(inside, client, one.id, "rl-all", max_requests_per_1_minute=2)
        _, others = await new_key(client, other.id)
        async with inside.client(value) as user, inside.client(others) as another:
            assert [await answered(user) for _ in range(3)] == [True, True, False]
            assert all([await answered(another) for _ in range(3)])
            with pytest.raises(openai.RateLimitError, match=f"in project {one.id} on requests per min"):
                await user.responses.create(model=MODEL, input="Hi")
            await projects.rate_limits.update_rate_limit("rl-all", project_id=one.id, max_requests_per_1_minute=1000)
            assert await until(lambda: answered(user))


async def test_a_project_has_one_limit_in_a_list(settings: Settings) -> None:
    async with administered(changed(settings, tenant_limits={"max_parallel_responses": 9})) as (inside, client):
        projects = client.admin.organization.projects
        project = await projects.create(name="one")
        made = await projects.rate_limits.update_rate_limit(
            "rl-all", project_id=project.id, max_tokens_per_1_minute=5000, extra_body={"max_tokens_per_1_month": 7}
        )
        assert (made.id, made.model, made.object) == ("rl-all", "all", "project.rate_limit")
        assert (made.max_tokens_per_1_minute, made.max_requests_per_1_minute) == (5000, None)
        assert made.model_extra == {"max_tokens_per_1_month": 7, "max_requests_per_1_month": None} | {
            "max_parallel_responses": 9
        }
        assert [each async for each in projects.rate_limits.list_rate_limits(project.id, limit=1)] == [made]
        async with inside.http() as http:
            path = f"/v1/organization/projects/{project.id}/rate_limits/rl-all"
            assert (await http.delete(path, headers=HEAD)).json()["deleted"] is True
        (left,) = [each async for each in projects.rate_limits.list_rate_limits(project.id)]
        assert left.max_tokens_per_1_minute is None


async def test_a_key_is_limited_and_no_other_of_its_project(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        projects = client.admin.organization.projects
        project = await projects.create(name="one")
        id, value = await new_key(client, project.id, extra_body={"limits": {"max_requests_per_1_minute": 1}})
        _, other = await new_key(client, project.id)
        async with inside.client(value) as user, inside.client(other) as another:
            assert [await answered(user) for _ in range(2)] == [True, False]
            assert [await answered(another) for _ in range(2)] == [True, True]
            with pytest.raises(openai.RateLimitError, match=f"with API key {id} on requests per min"):
                await user.responses.create(model=MODEL, input="Hi")
            async with inside.http() as http:
                path = f"/v1/organization/projects/{project.id}/api_keys/{id}"
                changed = await http.post(path, json={"limits": {"max_requests_per_1_month": 1}}, headers=HEAD)
                assert changed.json()["limits"] == {"max_requests_per_1_month": 1}
                await http.post(path, json={"limits": None}, headers=HEAD)
            assert await until(lambda: answered(user))


# --- weights ---

METRICS = "the-key-of-whoever-scrapes"
SCRAPER = {"authorization": f"Bearer {METRICS}"}

EACH = 12
"""How many requests of each project wait."""


async def waiting(inside: Inside, how_many: int) -> None:
    """Return once so many requests wait."""
    async with inside.http() as http:

        async def found() -> float:
            return Scraped((await http.get("/metrics", headers=SCRAPER)).text).value("harmonium_requests_waiting")

        await until(found, 20, wanted=lambda found: found == how_many)


async def heard(client: AsyncOpenAI, project: str, user: AsyncOpenAI) -> None:
    """Return once a process has heard of all that was changed: it is told in order, and this is the last of it."""
    permissions = client.admin.organization.projects.model_permissions

    async def served() -> bool:
        return bool([each async for each in user.models.list()])

    await permissions.update(project, mode="deny_list", model_ids=[MODEL])
    await until(served, 10, wanted=lambda found: not found)
    await permissions.delete(project)
    await until(served, 10)


async def test_whose_requests_are_next_follows_a_weight_that_changes_while_they_wait(settings: Settings) -> None:
    release = asyncio.Event()
    engine = scripted([Stall(release), answer("Done.")], [answer("Hello.")])
    one = changed(
        settings,
        admin_key=SecretStr(ADMIN),
        metrics_key=SecretStr(METRICS),
        api_keys=parse_api_keys(f"acme:{STATIC}"),
        max_concurrent_requests=1,
        admission_wait_seconds=60,
    )
    order: list[str] = []

    async def ask(user: AsyncOpenAI, name: str) -> None:
        await user.responses.create(model=MODEL, input="Hi", store=False)
        order.append(name)

    async with (
        serving(one, engine) as inside,
        admin(inside) as client,
        serving(one) as other,
        admin(other) as elsewhere,
    ):
        project = await client.admin.organization.projects.create(name="Chat")
        _, value = await new_key(client, project.id)
        async with inside.client(value) as chat, inside.client(STATIC) as acme:
            tasks = [asyncio.create_task(ask(chat, "chat"))]
            await until(lambda: engine.running == 1)
            for number in range(EACH):
                tasks += [asyncio.create_task(ask(user, name)) for user, name in ((chat, "chat"), (acme, "acme"))]
                await waiting(inside, 2 * number + 2)
            given = await elsewhere.admin.organization.projects.update("acme", extra_body={"weight": 4})
            assert given.model_extra is not None
            assert given.model_extra["weight"] == 4
            await heard(elsewhere, "acme", acme)
            release.set()
            await asyncio.gather(*tasks)
    assert 8 <= order[1 : 1 + EACH].count("acme") <= 11
