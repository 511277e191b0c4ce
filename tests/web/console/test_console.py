"""The console over HTTP: its files, the store's health for administrators alone, and what waits and runs of a key."""

import gzip
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.settings.settings import Settings
from service.web.console.page import FILES
from tests.support.service.background import changed
from tests.support.service.inside import Inside
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served, ServiceProcess
from tests.support.waiting import wait_until
from tests.web.admin.test_admin import ADMIN, STATIC, administered, new_key
from tests.web.test_health import stopped

MOST_BYTES = 70_000
"""Of all of it, compressed."""


def assets(service: ServiceProcess) -> list[str]:
    """The paths of what the page loads."""
    return re.findall(r'(?:href|src)="(/[^"]+)"', service.http().get("/console").text)


@pytest.mark.parametrize("path", ["/console", "/console/"])
def test_the_page_is_open_and_never_kept(tenants: ServiceProcess, path: str) -> None:
    answer = tenants.http().get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-store"
    assert tenants.http().head(path).headers["content-length"] == answer.headers["content-length"]


def test_what_it_loads_is_kept_for_good_as_its_names_are_of_what_is_in_it(service: ServiceProcess) -> None:
    paths = assets(service)
    assert sorted(path.rpartition(".")[2] for path in paths) == ["css", "js"]
    for path in paths:
        answer = service.http().get(path)
        assert "immutable" in answer.headers["cache-control"]
        assert re.search(r"-[0-9A-Z]{8}\.(js|css)$", path)


def test_everything_has_the_strict_policy_and_no_cookie(service: ServiceProcess) -> None:
    for path in ("/console", *assets(service)):
        headers = service.http().get(path).headers
        policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "set-cookie" not in headers


def test_all_of_it_is_small_compressed() -> None:
    assert sum(len(gzip.compress(file.read_bytes())) for file in FILES.iterdir()) <= MOST_BYTES


@pytest.mark.parametrize(
    "path", ["/console/static/", "/console/static/x.js", "/console/static/index.html", "/console/static/%2e%2e/page.py"]
)
def test_nothing_else_is_there(tenants: ServiceProcess, path: str) -> None:
    answer = tenants.http().get(path)
    assert (answer.status_code, "error" in answer.json()) == (404, True)


# --- health ---

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


def test_without_the_store_the_rest_is_told(start: Callable[..., ServiceProcess]) -> None:
    service = start(admin_key=ADMIN)
    with stopped(service.redis_pid()):
        answered = service.http(ADMIN).get(HEALTH)
    assert (answered.status_code, answered.json()["shards"]) == (200, None)


# --- jobs ---

JOBS = "/console/api/jobs"
NEVER_ENDING = "Count to 1000."


def test_a_response_is_listed_while_it_is_under_way(beside: Callable[..., Served]) -> None:
    service = beside(shards=2, demo_tokens_per_second=50)
    client, http = service.client(), service.http()
    assert http.get(JOBS).json() == {"object": "list", "data": [], "has_more": False}
    root = client.responses.create(model=MODEL, input="My name is Ada.").id
    made = [
        client.responses.create(model=MODEL, input=NEVER_ENDING, background=True, previous_response_id=parent).id
        for parent in (None, root, None)
    ]
    listed: list[dict[str, Any]] = http.get(JOBS).json()["data"]
    assert {job["id"] for job in listed} == set(made)
    (below,) = [job for job in listed if job["id"] == made[1]]
    assert (below["parent"], below["model"], below["input"], below["kind"]) == (root, MODEL, NEVER_ENDING, "response")
    assert {job["status"] for job in listed} <= {"queued", "in_progress"}
    some = http.get(JOBS, params={"limit": 2}).json()
    assert (len(some["data"]), some["has_more"]) == (2, True)
    for id in made:
        client.responses.cancel(id)
    wait_until(lambda: http.get(JOBS).json()["data"] == [])


def test_another_tenants_are_not_listed(beside: Callable[..., Served]) -> None:
    service = beside(api_keys=f"acme:{ACME_KEY},globex:{GLOBEX_KEY}", demo_tokens_per_second=50)
    id = service.client(ACME_KEY).responses.create(model=MODEL, input=NEVER_ENDING, background=True).id
    assert [job["id"] for job in service.http(ACME_KEY).get(JOBS).json()["data"]] == [id]
    assert service.http(GLOBEX_KEY).get(JOBS).json()["data"] == []
    assert service.http("sk-somebody-elses").get(JOBS).status_code == 401


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=some", "status=queued"])
def test_what_makes_no_sense_is_refused(service: Served, query: str) -> None:
    answer = service.http().get(f"{JOBS}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
