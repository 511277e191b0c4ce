"""Limits of projects and keys by the admin API, with the official SDK."""

import openai
import pytest
from openai import AsyncOpenAI

from service.settings.settings import Settings
from tests.support.service.background import changed
from tests.support.service.inside import Inside
from tests.support.service.process import MODEL
from tests.support.waiting import until
from tests.web.admin.test_admin import ADMIN, STATIC, administered, new_key

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
        types = [each.type async for each in client.admin.organization.audit_logs.list()]
        assert types[:3] == ["rate_limit.deleted", "rate_limit.updated", "project.created"]


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
                await http.post(path, json={"limits": None}, headers=HEAD)
            assert await until(lambda: answered(user))


async def test_a_tenant_of_the_settings_is_limited(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        rate_limits = client.admin.organization.projects.rate_limits
        await rate_limits.update_rate_limit("rl-all", project_id="acme", max_requests_per_1_minute=1)
        async with inside.client(STATIC) as user:
            assert [await answered(user) for _ in range(2)] == [True, False]
