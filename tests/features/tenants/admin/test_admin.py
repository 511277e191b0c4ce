"""The admin API over HTTP with the official SDK: projects, service accounts, keys, administrators, the audit log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import SecretStr

from service.process import Settings
from service.settings.core import parse_api_keys
from tests.support.engine.scripted import ScriptSource
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.sockets import socket
from tests.support.waiting import until

ADMIN = "an-administrators-key-of-the-settings"
STATIC = "sk-static-0123456789abcdef"


@asynccontextmanager
async def administered(settings: Settings, *scripts: ScriptSource) -> AsyncIterator[tuple[Inside, AsyncOpenAI]]:
    """A service with projects in its store, and a client that administers it."""
    settings = changed(settings, admin_key=SecretStr(ADMIN), api_keys=parse_api_keys(f"acme:{STATIC}"))
    async with serving(settings, scripted(*(scripts or ([answer("Hello.")],)))) as inside, admin(inside) as client:
        yield inside, client


def admin(inside: Inside, key: str = ADMIN) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{inside.url}/v1", admin_api_key=key, api_key="none", max_retries=0, timeout=30)


async def new_key(client: AsyncOpenAI, project: str, **wish: object) -> tuple[str, str]:
    """A key's id and value, of a service account of its own."""
    accounts = client.admin.organization.projects.service_accounts
    account = await accounts.create(project, name="app", create_service_account_only=True)
    made = await accounts.api_keys.create(account.id, project_id=project, **wish)
    return made.id, made.value


async def test_the_sdk_makes_a_project_whose_key_makes_responses(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        projects = client.admin.organization.projects
        project = await projects.create(name="Chat")
        account = await projects.service_accounts.create(project.id, name="web")
        assert account.api_key is not None
        async with inside.client(account.api_key.value) as user:
            made = await user.responses.create(model=MODEL, input="Hi")
            assert (await user.responses.retrieve(made.id)).output_text == "Hello."
        assert await inside.store.get(project.id, made.id)
        assert project.id.startswith("proj_")
        assert project.status == "active"
        assert [each.id async for each in projects.list()] == ["acme", project.id]
        (key,) = [each async for each in projects.api_keys.list(project.id)]
        assert key.id == account.api_key.id
        assert key.owner.service_account is not None
        assert key.owner.service_account.id == account.id
        assert account.api_key.value not in key.model_dump_json()
        assert key.redacted_value.endswith(account.api_key.value[-4:])


async def test_an_open_web_socket_makes_no_response_with_a_deleted_key(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        id, value = await new_key(client, project.id)
        async with (
            socket(inside.url, additional_headers={"authorization": f"Bearer {value}"}) as ws,
            inside.client(value) as user,
        ):
            assert (await ws.answer("hi"))["status"] == "completed"
            await client.admin.organization.projects.api_keys.delete(id, project_id=project.id)
            await refused(user, "invalid_api_key")
            await ws.ask()
            error = await ws.next()
            assert (error["status"], error["error"]["code"]) == (401, "invalid_api_key")


async def test_an_administrators_key_alone_closes_the_service(settings: Settings) -> None:
    settings = changed(settings, admin_key=SecretStr(ADMIN))
    async with serving(settings) as inside, inside.http() as http:
        for headers in ({}, {"authorization": "Bearer none"}):
            assert (await http.get("/v1/models", headers=headers)).status_code == 401
        assert (await http.get("/health")).status_code == 200


async def test_keys_of_a_deleted_account_and_of_an_archived_project_open_nothing(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        projects = client.admin.organization.projects
        project = await projects.create(name="Chat")
        account = await projects.service_accounts.create(project.id, name="web")
        _, value = await new_key(client, project.id)
        assert account.api_key is not None
        async with inside.client(account.api_key.value) as gone, inside.client(value) as user:
            await gone.models.list()
            assert (await projects.service_accounts.delete(account.id, project_id=project.id)).deleted
            await refused(gone, "invalid_api_key")
            await user.models.list()
            assert (await projects.archive(project.id)).status == "archived"
            await refused(user, "invalid_api_key")
        assert [each.id async for each in projects.list()] == ["acme"]
        assert [each.id async for each in projects.list(include_archived=True)] == ["acme", project.id]
        with pytest.raises(openai.BadRequestError, match="archived"):
            await projects.service_accounts.create(project.id, name="web")


async def test_a_request_asks_for_the_scopes_of_all_that_it_names(settings: Settings) -> None:
    async with administered(changed(settings, sandbox="local")) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        _, whole = await new_key(client, project.id)
        id, value = await new_key(client, project.id, scopes=["api.responses.write"])
        async with inside.client(whole) as owner, inside.client(value) as user:
            conversation = (await owner.conversations.create()).id
            first = (await owner.responses.create(model=MODEL, input="Hi", conversation=conversation)).id
            container = (await owner.containers.create(name="c")).id
            python: Any = [{"type": "code_interpreter", "container": container}]
            named: dict[str, dict[str, Any]] = {
                "api.conversations.write": {"conversation": conversation},
                "api.conversations.read": {"conversation": conversation, "store": False},
                "api.containers.write": {"tools": python},
            }
            for scope, what in named.items():
                with pytest.raises(openai.PermissionDeniedError, match=rf"Missing scopes: {scope.replace('.', '[.]')}"):
                    await user.responses.create(model=MODEL, input="Hi", **what)
            await user.responses.create(model=MODEL, input="Hi", previous_response_id=first)
            keys, fork = client.admin.organization.projects.api_keys, {"harmonium": {"fork_of": first}}
            await keys.update(id, project_id=project.id, scopes=["api.conversations.write"])
            with pytest.raises(openai.PermissionDeniedError, match=r"Missing scopes: api\.responses\.read"):
                await user.conversations.create(extra_body=fork)
            await keys.update(id, project_id=project.id, scopes=["api.responses.write", *named, "api.responses.read"])
            await user.conversations.create(extra_body=fork)
            for what in named.values():
                await user.responses.create(model=MODEL, input="Hi", **what)


async def test_a_message_that_is_made_here_asks_for_the_scope_of_a_response_too(settings: Settings) -> None:
    async with administered(changed(settings, chats="remember")) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        keys = client.admin.organization.projects.api_keys
        id, value = await new_key(client, project.id, scopes=["api.model.request"])
        asked: Any = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        async with inside.http() as http:
            http.headers["x-api-key"] = value
            for scopes, status in ((["api.model.request"], 403), (["api.model.request", "api.responses.write"], 200)):
                await keys.update(id, project_id=project.id, scopes=scopes)
                for path, more in (("", {"max_tokens": 16}), ("/count_tokens", {})):
                    reply = await http.post(f"/v1/messages{path}", json=asked | more)
                    assert reply.status_code == status, reply.text
                    assert status == 200 or reply.json()["error"]["type"] == "permission_error"


async def test_a_key_does_what_its_scopes_say(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        id, value = await new_key(client, project.id, scopes=["api.all.read"])
        keys = client.admin.organization.projects.api_keys
        async with inside.client(value) as user:
            await user.models.list()
            with pytest.raises(openai.PermissionDeniedError, match=r"Missing scopes: api\.responses\.write"):
                await user.responses.create(model=MODEL, input="Hi")
            await keys.update(id, project_id=project.id, scopes=["api.responses.write"])
            await user.responses.create(model=MODEL, input="Hi")
            with pytest.raises(openai.PermissionDeniedError, match=r"Missing scopes: api\.model\.read"):
                await user.models.list()
            await keys.update(id, project_id=project.id, scopes=[])
            await user.models.list()


async def test_a_key_that_was_made_for_an_administrator_administers_until_it_is_deleted(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        organization = client.admin.organization
        made = await organization.admin_api_keys.create(name="ops")
        async with admin(inside, made.value) as ops:
            assert [each.id async for each in ops.admin.organization.projects.list()] == ["acme"]
            assert [each.id async for each in organization.admin_api_keys.list()] == [made.id]
            await organization.admin_api_keys.delete(made.id)
            await until(lambda: opens(ops), wanted=lambda found: not found)


async def opens(ops: AsyncOpenAI) -> bool:
    """Whether the key of an administrator does, as far as the process has heard."""
    try:
        await ops.admin.organization.projects.list()
    except openai.AuthenticationError:
        return False
    return True


async def test_the_audit_log_says_who_did_what(settings: Settings) -> None:
    async with administered(settings) as (_, client):
        organization = client.admin.organization
        project = await organization.projects.create(name="Chat")
        id, value = await new_key(client, project.id, scopes=["api.responses.read"])
        await organization.projects.api_keys.delete(id, project_id=project.id)
        log = [each async for each in organization.audit_logs.list(limit=2)]
        kinds = [each.type for each in log]
        assert kinds == ["api_key.deleted", "api_key.created", "service_account.created", "project.created"]
        assert log[1].api_key_created is not None
        assert log[1].api_key_created.data is not None
        assert log[1].api_key_created.data.scopes == ["api.responses.read"]
        assert log[0].actor is not None
        assert log[0].actor.api_key is not None
        assert log[0].actor.api_key.id == "settings"
        assert all(value not in each.model_dump_json() for each in log)
        of_project = [each async for each in organization.audit_logs.list(project_ids=[project.id], limit=1)]
        assert [each.type for each in of_project] == kinds


async def test_a_key_of_one_project_is_not_for_a_request_that_names_another(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        _, value = await new_key(client, project.id)
        async with inside.client(value) as user:
            await user.with_options(project=project.id).models.list()
            with pytest.raises(openai.AuthenticationError) as refusal:
                await user.with_options(project="proj_other").models.list()
            assert refusal.value.code == "mismatched_project"


async def refused(user: AsyncOpenAI, code: str) -> None:
    with pytest.raises(openai.AuthenticationError) as refusal:
        await user.models.list()
    assert refusal.value.code == code
