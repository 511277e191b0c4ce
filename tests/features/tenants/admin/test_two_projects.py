"""Two projects that attack each other through every route of the admin API: neither sees anything of the other.

The routes are the application's own, so a new one is attacked too.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from service.features.tenants.permissions import SCOPES
from service.process import Settings
from service.web.auth import ADMINISTRATION
from tests.features.tenants.admin.test_admin import ADMIN, STATIC, administered
from tests.support.service.inside import Inside
from tests.support.service.process import MODEL
from tests.support.service.routes import served

ALL = served()
ADMINISTRATORS = [(method, path) for method, path in ALL if path.startswith(ADMINISTRATION)]
OTHERS = [(method, path) for method, path in ALL if "/v1/" in path and (method, path) not in ADMINISTRATORS]
OF_ONE_IN_A_PROJECT = [each for each in ADMINISTRATORS if "{account_id}" in each[1] or "{key_id}" in each[1]]
AROUND = ("/{}", "/open-responses{}", "/v1{}", "{}/", "{}/../projects", "/%2e{}")
"""Other ways to write a path, which lead nowhere."""

BODIES = {"api_keys": {}, "{key_id}": {"scopes": []}, "model_permissions": {"mode": "deny_list", "model_ids": []}}
"""What a route takes, by the end of its path; others take a name."""


class Theirs(NamedTuple):
    """What there is of a project."""

    project: str
    account: str
    key: str
    value: str

    def path(self, template: str) -> str:
        """The path of a route that is about this project and what is in it."""
        path = template.replace("{project_id}", self.project).replace("{account_id}", self.account)
        return (
            path.replace("{key_id}", self.key)
            .replace("{rate_limit_id:path}", "rl-all")
            .replace("{", "")
            .replace("}", "")
        )


def head(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def two(settings: Settings) -> AsyncIterator[tuple[Inside, httpx.AsyncClient, Theirs, Theirs]]:
    """Two projects, each with an account, a key, a limit, a response that it made and one that it deleted."""
    async with administered(settings) as (inside, _), inside.http() as http:

        async def made(name: str) -> Theirs:
            path = f"{ADMINISTRATION}/projects"
            project = (await http.post(path, json={"name": name}, headers=head(ADMIN))).json()["id"]
            path = f"{path}/{project}"
            account = (
                await http.post(f"{path}/service_accounts", json={"name": f"{name}s"}, headers=head(ADMIN))
            ).json()
            limit = {"max_requests_per_1_month": 4242}
            await http.post(f"{path}/rate_limits/rl-all", json=limit, headers=head(ADMIN))
            async with inside.client(account["api_key"]["value"]) as client:
                await client.responses.create(model=MODEL, input="Hi")
                response = await client.responses.create(model=MODEL, input="Hi")
                await client.responses.delete(response.id)
            return Theirs(project, account["id"], account["api_key"]["id"], account["api_key"]["value"])

        yield inside, http, await made("attacker"), await made("victim")


async def seen(http: httpx.AsyncClient, theirs: Theirs) -> dict[str, Any]:
    """What an administrator sees of a project, by path."""
    paths = [theirs.path(path) for method, path in ADMINISTRATORS if method == "GET" and "{project_id}" in path]
    return {path: (await http.get(path, headers=head(ADMIN))).json() for path in paths}


def leaks(text: str, victim: Theirs) -> list[str]:
    """What an answer says of the other project."""
    return [each for each in (*victim, "victim", "4242") if each in text]


def body_for(path: str) -> dict[str, Any]:
    return BODIES.get(path.rpartition("/")[2], {"name": "mine"})


def test_these_are_the_routes() -> None:
    assert len(ADMINISTRATORS) >= 28
    assert len(OF_ONE_IN_A_PROJECT) >= 9
    assert len(OTHERS) >= 30


async def test_no_key_of_a_project_opens_any_route_of_administrators(settings: Settings) -> None:
    async with two(settings) as (_, http, attacker, victim):
        before = await seen(http, victim)
        keys = [attacker.value, STATIC]
        path = f"{ADMINISTRATION}/projects/{attacker.project}/service_accounts/{attacker.account}/api_keys"
        made = [await http.post(path, json={"scopes": [scope]}, headers=head(ADMIN)) for scope in SCOPES]
        keys += [each.json()["value"] for each in made]
        for method, template in ADMINISTRATORS:
            path = victim.path(template)
            assert (await http.request(method, path, json=body_for(template))).status_code == 401
            for key in keys:
                answer = await http.request(method, path, json=body_for(template), headers=head(key))
                assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_permissions"), path
                assert "Use an administrator's key" in answer.text
                assert not leaks(answer.text.replace(path, ""), victim)
            for way in AROUND:
                answer = await http.request(method, way.format(path), json=body_for(template), headers=head(keys[0]))
                assert answer.status_code in (403, 404), answer.url
                assert not {"victim", "4242", victim.value} & set(leaks(answer.text, victim))
        assert await seen(http, victim) == before


async def test_no_key_of_an_administrator_opens_any_other_route(settings: Settings) -> None:
    async with two(settings) as (_, http, _, victim):
        made = await http.post(f"{ADMINISTRATION}/admin_api_keys", json={"name": "ops"}, headers=head(ADMIN))
        for method, template in OTHERS:
            for key in (ADMIN, made.json()["value"]):
                answer = await http.request(method, victim.path(template), json={}, headers=head(key))
                refusal = "permission_error" if "/v1/messages" in template else "insufficient_permissions"
                assert (answer.status_code, refusal in answer.text) == (403, True), template
                assert "Use a project's key: this one is an administrator's" in answer.text


async def test_what_is_in_one_project_is_by_another_what_never_was(settings: Settings) -> None:
    async with two(settings) as (_, http, attacker, victim):
        before = await seen(http, victim)
        for method, template in OF_ONE_IN_A_PROJECT:
            told = list[str]()
            for account, key in ((victim.account, victim.key), (f"svc_acct_{'0' * 24}", f"key_{'0' * 24}")):
                path = attacker._replace(account=account, key=key).path(template)
                answer = await http.request(method, path, json=body_for(template), headers=head(ADMIN))
                assert answer.status_code == 404, path
                told.append(answer.text.replace(account, "…").replace(key, "…"))
            assert told[0] == told[1]
        assert await seen(http, victim) == before


async def test_lists_of_one_project_have_nothing_of_the_other(settings: Settings) -> None:
    async with two(settings) as (_, http, attacker, victim):
        for method, template in ADMINISTRATORS:
            if method == "GET" and "{project_id}" in template:
                path = attacker.path(template)
                answer = await http.get(path, headers=head(ADMIN))
                assert answer.status_code == 200
                assert not {*leaks(answer.text, victim)} - {"4242"}, path
                for cursor in (victim.project, victim.account, victim.key):
                    answer = await http.get(path, params={"after": cursor}, headers=head(ADMIN))
                    assert answer.status_code == 400, path
        log = (await http.get(f"{ADMINISTRATION}/audit_logs?limit=100", headers=head(ADMIN))).json()["data"]
        mine = await http.get(f"{ADMINISTRATION}/audit_logs?project_ids[]={attacker.project}", headers=head(ADMIN))
        assert len(mine.json()["data"]) == len(log) // 2
        assert not {*leaks(mine.text, victim)} - {"4242"}
