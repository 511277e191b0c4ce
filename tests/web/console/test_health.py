"""The store's health over HTTP: what `/metrics` has, for administrators and for nobody else."""

from collections.abc import Callable
from typing import Any

import httpx

from service.settings.settings import Settings
from tests.support.service.background import changed
from tests.support.service.inside import Inside, answer, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.web.admin.test_admin import ADMIN, STATIC, administered, new_key
from tests.web.test_health import stopped

HEALTH = "/console/api/health"


async def asked(inside: Inside, key: str | None = ADMIN, path: str = HEALTH) -> httpx.Response:
    async with inside.http() as http:
        return await http.get(path, headers={} if key is None else {"authorization": f"Bearer {key}"})


async def test_an_administrator_sees_caps_shards_and_servers(settings: Settings) -> None:
    async with administered(changed(settings, max_responses=500)) as (inside, _):
        async with inside.client(STATIC) as user:
            await user.responses.create(model=MODEL, input="My secret words.")
        answered = await asked(inside)
    assert answered.status_code == 200
    found: dict[str, Any] = answered.json()
    assert found["object"] == "console.health"
    assert found["limits"]["max_responses"] == 500
    assert sum(shard["responses"] for shard in found["shards"]) == 1
    assert [shard["shard"] for shard in found["shards"]] == list(range(len(found["shards"])))
    assert set(found["shards"][0]["queued"].values()) == {0}
    assert found["removed"].keys() == {"responses", "trees", "bytes", "memory", "idle"}
    assert "secret" not in answered.text


async def test_nobody_else_sees_it(settings: Settings) -> None:
    async with administered(settings) as (inside, client):
        project = await client.admin.organization.projects.create(name="Chat")
        _, value = await new_key(client, project.id)
        _, reads = await new_key(client, project.id, scopes=["api.all.read", "api.model.request"])
        for key in (STATIC, value, reads):
            refused = await asked(inside, key)
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "insufficient_permissions")
        for key in (None, "sk-wrong"):
            assert (await asked(inside, key)).status_code == 401
        for path in ("/console/api/trees", "/console/api/jobs", f"{HEALTH}/", f"{HEALTH}z"):
            assert (await asked(inside, path=path)).status_code == 403
        for path in ("/console/api/heal%74h", "/console//api/health", "/console/api/./health"):
            assert (await asked(inside, value, path)).status_code in (403, 404)


async def test_a_service_without_projects_has_no_such_route(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside:
        assert (await asked(inside, None)).status_code == 404


def test_without_the_store_the_rest_is_told(start: Callable[..., ServiceProcess]) -> None:
    service = start(admin_key=ADMIN)
    with stopped(service.redis_pid()):
        answered = service.http(ADMIN).get(HEALTH)
    assert (answered.status_code, answered.json()["shards"]) == (200, None)
