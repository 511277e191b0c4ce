"""A project's weight: given, shown and taken away over HTTP, and followed by whose requests are next."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.admin.organization import Project
from pydantic import SecretStr

from service.settings.core import parse_api_keys
from service.settings.settings import Settings
from tests.support.engine.scripted import Stall
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.scraped import Scraped
from tests.support.waiting import until
from tests.web.admin.test_admin import ADMIN, STATIC, admin, administered, new_key

METRICS = "the-key-of-whoever-scrapes"
SCRAPER = {"authorization": f"Bearer {METRICS}"}

EACH = 12
"""How many requests of each project wait."""


def weight_of(project: Project) -> Any:
    return (project.model_extra or {})["weight"]


async def test_a_weight_is_given_shown_changed_and_taken_away(settings: Settings) -> None:
    async with administered(settings) as (_, client):
        projects = client.admin.organization.projects
        plain = await projects.create(name="Plain")
        assert weight_of(plain) is None
        project = await projects.create(name="Chat", extra_body={"weight": 3})
        assert weight_of(project) == 3
        assert weight_of(await projects.retrieve(project.id)) == 3
        renamed = await projects.update(project.id, name="Talk")
        assert (renamed.name, weight_of(renamed)) == ("Talk", 3)
        changed_weight = await projects.update(project.id, extra_body={"weight": 0.01})
        assert (changed_weight.name, weight_of(changed_weight)) == ("Talk", 0.01)
        assert [weight_of(each) async for each in projects.list()] == [None, None, 0.01]
        assert weight_of(await projects.update(project.id, extra_body={"weight": None})) is None
        types: Any = ["project.created", "project.updated"]
        log = [each.to_dict() async for each in client.admin.organization.audit_logs.list(event_types=types)]
        about: list[Any] = [each[str(each["type"])] for each in log[::-1]]
        assert [each.get("data") or each["changes_requested"] for each in about] == [
            {"name": "Plain"},
            {"name": "Chat", "weight": 3},
            {"title": "Talk"},
            {"weight": 0.01},
            {"weight": None},
        ]


async def test_a_tenant_of_the_settings_may_be_given_a_weight_but_no_name(settings: Settings) -> None:
    async with administered(settings) as (_, client):
        projects = client.admin.organization.projects
        assert weight_of(await projects.update("acme", extra_body={"weight": 1000})) == 1000
        with pytest.raises(openai.BadRequestError, match="tenant of HARMONIUM_API_KEYS"):
            await projects.update("acme", name="Acme", extra_body={"weight": 2})
        assert weight_of(await projects.retrieve("acme")) == 1000


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


@pytest.mark.parametrize(("of_settings", "given", "least", "most"), [("", 4, 8, 11), ("acme=50", 1, 5, 7)])
async def test_whose_requests_are_next_follows_a_weight_that_changes_while_they_wait(
    settings: Settings, of_settings: str, given: float, least: int, most: int
) -> None:
    release = asyncio.Event()
    engine = scripted([Stall(release), answer("Done.")], [answer("Hello.")])
    one = changed(
        settings,
        admin_key=SecretStr(ADMIN),
        metrics_key=SecretStr(METRICS),
        api_keys=parse_api_keys(f"acme:{STATIC}"),
        tenant_weights=tuple(filter(None, [of_settings])),
        max_concurrent_requests=1,
        queue_seconds=60,
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
            await elsewhere.admin.organization.projects.update("acme", extra_body={"weight": given})
            await heard(elsewhere, "acme", acme)
            release.set()
            await asyncio.gather(*tasks)
    assert least <= order[1 : 1 + EACH].count("acme") <= most
