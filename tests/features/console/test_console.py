"""The console over HTTP: its files, the store's health for administrators alone, and what waits and runs of a key."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from service.features.python.feature import run_in
from service.process import Settings
from tests.features.tenants.admin.test_admin import ADMIN, STATIC, administered, new_key
from tests.support.batches import begun, lines
from tests.support.sandbox.sandboxes import bare
from tests.support.service.background import changed
from tests.support.service.inside import Inside, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served, ServiceProcess
from tests.support.waiting import wait_until


def assets(service: ServiceProcess) -> list[str]:
    """The paths of what the page loads."""
    return re.findall(r'(?:href|src)="(/[^"]+)"', service.http().get("/console").text)


def test_the_page_is_open_and_what_it_loads_is_kept_for_good_under_a_strict_policy(tenants: ServiceProcess) -> None:
    paths = assets(tenants)
    assert sorted(path.rpartition(".")[2] for path in paths) == ["css", "js"]
    for path in ("/console", "/console/", *paths):
        answer = tenants.http().get(path)
        headers = answer.headers
        assert answer.status_code == 200
        assert headers["cache-control"] == "no-store" if path not in paths else "immutable" in headers["cache-control"]
        assert path not in paths or re.search(r"-[0-9A-Z]{8}\.(js|css)$", path)
        policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert "set-cookie" not in headers
    for path in paths:
        plain, packed = (tenants.http().get(path, headers={"accept-encoding": each}) for each in ("identity", "gzip"))
        assert packed.content == plain.content
        assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "accept-encoding")
        assert packed.headers["content-type"] == plain.headers["content-type"]
        assert int(packed.headers["content-length"]) < int(plain.headers["content-length"]) / 2
    for path in ("x.js", "index.html", "%2e%2e/page.py"):
        assert tenants.http().get(f"/console/static/{path}").status_code == 404


# --- tools ---

PYTHON = {"type": "code_interpreter", "container": {"type": "auto"}}


async def test_the_tools_that_run_are_told_as_requests_declare_them_and_others_with_the_setting_that_gives_them(
    settings: Settings, tmp_path: Path
) -> None:
    async with serving(settings) as inside:
        nothing: list[dict[str, Any]] = (await asked(inside, None, "/console/api/tools")).json()["data"]
    assert [(each["declaration"]["type"], each["setting"]) for each in nothing] == [
        ("mcp", "HARMONIUM_MCP_SERVERS"),
        ("web_search", "HARMONIUM_SEARCH"),
        ("code_interpreter", "HARMONIUM_SANDBOX"),
    ]
    (servers := tmp_path / "mcp.toml").write_text('[docs]\nurl = "http://docs.invalid/mcp"\n')
    found = changed(settings, search="folder", search_dir=str(tmp_path), mcp_servers=str(servers))
    with bare() as sandbox:
        async with serving(found, compose=partial(run_in, sandbox)) as inside:
            all_of_them = (await asked(inside, None, "/console/api/tools")).json()["data"]
    assert [each["setting"] for each in all_of_them] == [None] * 3
    declared = [each["declaration"] for each in all_of_them]
    assert declared == [{"type": "mcp", "server_label": "docs"}, {"type": "web_search"}, PYTHON]


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
    assert sum(shard["responses"] for shard in found["shards"].values()) == 1
    assert list(found["shards"]) == [str(number) for number in range(len(found["shards"]))]
    assert set(found["shards"]["0"]["waiting"]) == {0}
    assert found["work"] == {"batches": []}
    assert found["removed"].keys() == {"responses", "trees", "bytes", "memory", "idle"}
    assert "secret" not in answered.text


async def test_an_administrator_sees_batches_under_way(settings: Settings) -> None:
    async with administered(changed(settings, embedded_worker=False)) as (inside, _), inside.client(STATIC) as user:
        batch = await begun(user, lines({"input": "My secret words."}), metadata={"a": "secret"})
        answered = await asked(inside)
        (shown,) = answered.json()["work"]["batches"]
        counts = {"total": 0, "completed": 0, "failed": 0}
        assert shown == {"tenant": shown["tenant"], "id": batch.id, "status": "validating", "counts": counts}
        assert "secret" not in answered.text
        await user.batches.cancel(batch.id)
        assert (await asked(inside)).json()["work"] == {"batches": []}


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
