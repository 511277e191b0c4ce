"""Tenants of the settings in the admin API: they are projects, whose names and keys are changed elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from service.process import Settings
from service.settings.core import ApiKey, parse_api_keys
from tests.features.tenants.admin.test_admin import ADMIN, admin
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL

ACME, GLOBEX = "sk-acme-0123456789abcdef", "sk-globex-0123456789abcdef"


@asynccontextmanager
async def two_tenants(
    settings: Settings, *keys: ApiKey, **more: object
) -> AsyncIterator[tuple[Inside, AsyncOpenAI, Settings]]:
    """A service with two tenants of its settings, and a client that administers it."""
    both = keys or parse_api_keys(f"acme:{ACME},globex:{GLOBEX},globex:{GLOBEX}2")
    given = changed(settings, admin_key=SecretStr(ADMIN), api_keys=both, **more)
    async with serving(given, scripted([answer("Hello.")])) as inside, admin(inside) as client:
        yield inside, client, given


async def records(inside: Inside) -> list[bytes]:
    store = inside.store
    async with store.server.operation() as operation:
        return await operation.command("HKEYS", store.keyspace.all_shards()[0].registry)


async def test_they_are_listed_first_and_nothing_is_written_of_them(settings: Settings) -> None:
    async with two_tenants(settings) as (inside, client, _):
        projects = client.admin.organization.projects
        assert [(each.id, each.name, each.status) async for each in projects.list()] == [
            ("acme", "acme", "active"),
            ("globex", "globex", "active"),
        ]
        assert [each.id async for each in projects.list(limit=1, after="acme")] == ["globex"]
        one = await projects.retrieve("acme")
        assert (one.created_at, (one.model_extra or {})["static"]) == (0, True)
        made = await projects.create(name="Chat")
        assert (made.model_extra or {})["static"] is False
        assert [each.id async for each in projects.list(limit=2)] == ["acme", "globex", made.id]
        assert [each async for each in projects.service_accounts.list("acme")] == []
        assert [each async for each in projects.api_keys.list("acme")] == []
        assert not [each for each in await records(inside) if each.startswith(b"project/") and b"proj_" not in each]
        with pytest.raises(openai.NotFoundError):
            await projects.retrieve("umbrella")


async def test_their_names_and_keys_are_changed_in_the_settings(settings: Settings) -> None:
    async with two_tenants(settings) as (inside, client, _):
        projects = client.admin.organization.projects
        before = await records(inside)
        for attempt in (
            projects.update("acme", name="Acme"),
            projects.archive("acme"),
            projects.service_accounts.create("acme", name="web"),
            projects.service_accounts.api_keys.create("svc_acct_x", project_id="acme"),
        ):
            with pytest.raises(openai.BadRequestError, match="tenant of HARMONIUM_API_KEYS"):
                await attempt
        assert await records(inside) == before


async def test_what_they_may_use_can_be_said_and_holds_for_a_process_that_starts_later(settings: Settings) -> None:
    async with two_tenants(settings) as (inside, client, given):
        permissions = client.admin.organization.projects.model_permissions
        async with inside.client(ACME) as acme, inside.client(GLOBEX) as globex:
            await acme.responses.create(model=MODEL, input="Hi")
            await permissions.update("acme", mode="deny_list", model_ids=[MODEL])
            with pytest.raises(openai.NotFoundError):
                await acme.responses.create(model=MODEL, input="Hi")
            assert [each async for each in acme.models.list()] == []
            await globex.responses.create(model=MODEL, input="Hi")
        async with serving(given, scripted([answer("Hello.")])) as again, again.client(ACME) as acme:
            with pytest.raises(openai.NotFoundError):
                await acme.responses.create(model=MODEL, input="Hi")
        (entry,) = [each async for each in client.admin.organization.audit_logs.list(project_ids=["acme"])]
        assert entry.type == "project.updated"
        await permissions.delete("acme")
        async with inside.client(ACME) as acme:
            await acme.responses.create(model=MODEL, input="Hi")


async def test_a_key_of_the_settings_opens_nothing_of_a_project_that_is_archived(settings: Settings) -> None:
    async with two_tenants(settings) as (_, client, given):
        projects = client.admin.organization.projects
        project = await projects.create(name="Chat")
        named = changed(given, api_keys=parse_api_keys(f"{project.id}:{ACME}"))
        async with serving(named, scripted([answer("Hello.")])) as other, other.client(ACME) as user:
            await user.models.list()
        await projects.archive(project.id)
        async with serving(named, scripted([answer("Hello.")])) as other, other.client(ACME) as user:
            with pytest.raises(openai.AuthenticationError):
                await user.models.list()
