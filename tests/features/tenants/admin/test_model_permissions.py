"""Which models a project may use, over HTTP with the official SDK: what it may not use is, for it, not there."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from service.process import Settings, load_settings
from tests.core.web.test_several_models import A, B, two_servers
from tests.features.tenants.admin.test_admin import ADMIN, admin, new_key
from tests.support.service.inside import Inside, serving
from tests.support.service.sockets import socket
from tests.support.waiting import until

Asks = Callable[[AsyncOpenAI, str], Awaitable[Any]]

MESSAGES: Any = [{"role": "user", "content": "hi"}]


@asynccontextmanager
async def two_models(settings: Settings, tmp_path: Path) -> AsyncIterator[tuple[Inside, AsyncOpenAI, str, AsyncOpenAI]]:
    """A service with two models, an administrator of it, a project, and a client with a key of that."""
    async with two_servers(tmp_path) as (path, _, _):
        where = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix}
        given = load_settings(**where, engines=str(path), admin_key=ADMIN)
        async with serving(given) as inside, admin(inside) as client:
            project = await client.admin.organization.projects.create(name="Chat")
            _, value = await new_key(client, project.id)
            async with inside.client(value) as user:
                yield inside, client, project.id, user


async def websocket(user: AsyncOpenAI, model: str) -> None:
    """A response over a WebSocket. Raises as the SDK does."""
    headers = {"authorization": f"Bearer {user.api_key}"}
    async with socket(str(user.base_url).removesuffix("/v1/"), additional_headers=headers) as ws:
        await ws.send(model=model, input="hi")
        last = (await ws.rest())[-1]
        if last["type"] == "error":
            raise LookupError(last["error"]["code"], last["error"]["message"])


def dialect(user: AsyncOpenAI) -> AsyncOpenAI:
    return user.with_options(base_url=str(user.base_url).replace("/v1", "/open-responses/v1"))


WAYS: dict[str, Asks] = {
    "create": lambda user, model: user.responses.create(model=model, input="hi"),
    "background": lambda user, model: user.responses.create(model=model, input="hi", background=True),
    "count": lambda user, model: user.responses.input_tokens.count(model=model, input="hi"),
    "compact": lambda user, model: user.responses.compact(model=model, input="hi"),
    "chat": lambda user, model: user.chat.completions.create(model=model, messages=MESSAGES),
    "retrieve": lambda user, model: user.models.retrieve(model),
    "other dialect": lambda user, model: dialect(user).responses.create(model=model, input="hi"),
    "websocket": websocket,
}


async def refusal(asks: Asks, user: AsyncOpenAI, model: str) -> tuple[object, str]:
    """The code and the words with which a model is refused, whatever its name is."""
    try:
        await asks(user, model)
    except openai.NotFoundError as error:
        return error.code, error.body["message"].replace(model, "MODEL")  # type: ignore[index]
    except LookupError as error:
        return error.args[0], error.args[1].replace(model, "MODEL")
    pytest.fail(f"{model} is there")


async def test_a_model_that_a_project_may_not_use_is_not_there_for_it(settings: Settings, tmp_path: Path) -> None:
    async with two_models(settings, tmp_path) as (_, client, project, user):
        permissions = client.admin.organization.projects.model_permissions
        set_to = await permissions.update(project, mode="deny_list", model_ids=[A])
        assert (set_to.mode, set_to.api_model_ids) == ("deny_list", [A])
        for name, asks in WAYS.items():
            unknown = await refusal(asks, user, "gpt-9")
            assert unknown[0] == "model_not_found", name
            assert await refusal(asks, user, A) == unknown, name
            for other in (f"openai/{A}", "gpt-4o-mini") if name == "create" else ():
                assert await refusal(asks, user, other) == unknown, name
        assert f"serves '{B}'." in (await refusal(WAYS["create"], user, A))[1]
        for each in (user, dialect(user)):
            assert [model.id async for model in each.models.list()] == [B, f"openai/{B}"]
        for name in ("create", "count", "chat", "retrieve", "websocket", "background"):
            await WAYS[name](user, B)


async def test_with_a_list_only_those_on_it_are_there_and_without_one_all(settings: Settings, tmp_path: Path) -> None:
    async with two_models(settings, tmp_path) as (_, client, project, user):
        permissions = client.admin.organization.projects.model_permissions
        at_first = await permissions.retrieve(project)
        assert (at_first.mode, at_first.api_model_ids) == ("deny_list", [])
        everything = [model.id async for model in user.models.list()]
        await permissions.update(project, mode="allow_list", model_ids=["gpt-4o-mini", "gpt-6"])
        assert (await permissions.retrieve(project)).api_model_ids == ["gpt-4o-mini", "gpt-6"]
        assert [model.id async for model in user.models.list()] == [A, f"openai/{A}", "gpt-4o-mini"]
        with pytest.raises(openai.NotFoundError):
            await user.responses.create(model=B, input="hi")
        await permissions.update(project, mode="allow_list", model_ids=[])
        assert [model.id async for model in user.models.list()] == []
        with pytest.raises(openai.NotFoundError, match="serves you none"):
            await user.responses.create(model=A, input="hi")
        gone = await permissions.delete(project)
        assert (gone.deleted, gone.object) == (True, "project.model_permissions.deleted")
        assert [model.id async for model in user.models.list()] == everything


async def test_an_open_web_socket_has_the_list_of_now(settings: Settings, tmp_path: Path) -> None:
    async with two_models(settings, tmp_path) as (inside, client, project, user):
        headers = {"authorization": f"Bearer {user.api_key}"}
        async with socket(inside.url, additional_headers=headers) as ws:
            assert (await ws.answer("hi"))["status"] == "completed"
            await client.admin.organization.projects.model_permissions.update(project, mode="deny_list", model_ids=[A])

            async def last() -> dict[str, Any]:
                await ws.ask()
                return (await ws.rest())[-1]

            error = await until(last, wanted=lambda found: found["type"] == "error")  # some milliseconds later
            assert (error["status"], error["error"]["code"]) == (404, "model_not_found")
