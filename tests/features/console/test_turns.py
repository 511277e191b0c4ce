"""Turns over HTTP as a file has them: they come back as they were, to whom they were, and nothing else does."""

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.process import Settings
from tests.support.console.administered import ADMIN_KEY, admin, with_key
from tests.support.service.inside import serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served

TREES, TURNS = "/console/api/trees", "/console/api/turns"
UNKNOWN = "resp_" + "0" * 46 + "aa"


def exported(http: httpx.Client, id: str) -> list[dict[str, Any]]:
    """The turns of a tree, parents first."""
    tree = http.get(f"{TREES}/{id}").json()
    answers = [http.get(f"{TURNS}/{turn['id']}") for turn in tree["turns"]]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    return [answer.json() for answer in answers]


def brought(http: httpx.Client, turn: dict[str, Any]) -> httpx.Response:
    return http.post(TURNS, json={name: turn[name] for name in ("turn", "seal")})


def refused(answer: httpx.Response, status: int, param: str | None, code: str | None) -> str:
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), answer.text
    return str(error["message"])


def test_turns_of_one_project_come_back_to_it_alone(tenants: Served) -> None:
    acme, globex = tenants.http(ACME_KEY), tenants.http(GLOBEX_KEY)
    made = tenants.client(ACME_KEY).responses.create(model=MODEL, input="My name is Ada.")
    (turn,) = exported(acme, made.id)
    message = refused(brought(globex, turn), 400, "seal", "invalid_value")
    assert "same HARMONIUM_SEAL_KEYS" in message
    assert made.id not in globex.get(TREES).text
    unknown, foreign = globex.get(f"{TURNS}/{UNKNOWN}"), globex.get(f"{TURNS}/{made.id}")
    assert refused(foreign, 404, "response_id", None).replace(made.id, UNKNOWN) == refused(
        unknown, 404, "response_id", None
    )
    assert brought(acme, turn).json()["new"] is False


def test_a_key_without_the_right_neither_moves_a_turn_nor_learns_whether_it_is_there(
    beside: Callable[..., Served],
) -> None:
    service = beside(admin_key=ADMIN_KEY, archive_url="none")

    def scoped(*scopes: Any) -> httpx.Client:
        made = accounts.api_keys.create(account.id, project_id=project, scopes=scopes)
        return service.http(made.value)

    with admin(service) as client:
        project, value = with_key(client, "Letters")
        accounts = client.admin.organization.projects.service_accounts
        (account,) = accounts.list(project).data
        reads, reads_all = scoped("api.responses.read"), scoped("api.all.read")
        writes, neither = scoped("api.responses.write"), scoped("api.conversations.write", "api.model.read")
    id = service.client(value).responses.create(model=MODEL, input="My name is Ada.").id
    (turn,) = exported(service.http(value), id)
    for may in (reads, reads_all):
        assert may.get(f"{TURNS}/{id}").json()["turn"] == turn["turn"]
        assert may.get(f"{TURNS}/{UNKNOWN}").status_code == 404
        assert "api.responses.write" in refused(brought(may, turn), 403, None, "insufficient_permissions")
    assert brought(writes, turn).json()["new"] is False
    for key in (writes, neither):
        for rest in ("", "/tokens", "/outcomes"):
            answers = [key.get(f"{TURNS}/{each}{rest}") for each in (id, UNKNOWN, "no-id")]
            assert "api.responses.read" in refused(answers[0], 403, None, "insufficient_permissions")
            assert len({answer.content for answer in answers}) == 1
    service.http(value).delete(f"/v1/responses/{id}?tree=true")
    for key in (neither, reads):
        answers = [brought(key, each) for each in (turn, turn | {"turn": "AAAA"}, turn | {"seal": 7})]
        assert {answer.status_code for answer in answers} == {403}
        assert len({answer.content for answer in answers}) == 1
    assert service.http(value).get(f"{TURNS}/{id}").status_code == 404, "nothing of it was stored"
    came = brought(writes, turn).json()
    assert (came["new"], came["deleted"]) == (True, False)


def test_what_was_changed_comes_back_nowhere(service: Served) -> None:
    http = service.http()
    one, other = (
        exported(http, service.client().responses.create(model=MODEL, input=text).id)[0]
        for text in ("My name is Ada.", "My name is Bo.")
    )
    assert b64decode(one["turn"])
    for name in ("turn", "seal"):
        at = len(one[name]) // 2
        changed = one[name][:at] + ("A" if one[name][at] != "A" else "B") + one[name][at + 1 :]
        assert refused(brought(http, one | {name: changed}), 400, "seal", "invalid_value")
    refused(brought(http, one | {"seal": other["seal"]}), 400, "seal", "invalid_value")
    refused(brought(http, one | {"turn": other["seal"], "seal": None}), 400, "turn", "invalid_value")
    refused(brought(http, one | {"seal": None}), 400, "turn", "invalid_value")
    sealed = service.client().responses.create(
        model=MODEL, input="Hello", include=["reasoning.encrypted_content"], reasoning={"effort": "high"}
    )
    thought = next(item for item in sealed.output if item.type == "reasoning").encrypted_content
    refused(brought(http, one | {"seal": thought}), 400, "seal", "invalid_value")
    refused(brought(http, one | {"turn": thought, "seal": None}), 400, "turn", "invalid_value")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"[" * 100_000, None),
        (b'{"turn":"","seal":1}', "seal"),
        (b'{"turn":"AAAA","seal":"hs_AAAA"}', "seal"),
        (b'{"turn":"\\ud800","seal":"x"}', None),
        (b'{"turn":"' + b"A" * 3_000_000 + b'","seal":"hs_AAAA"}', "seal"),
    ],
    ids=lambda value: re.sub(r"\W+", "_", repr(value))[:40],
)
def test_what_is_no_turn_is_refused_by_name(service: Served, body: bytes, param: str | None) -> None:
    answer = service.http().post(TURNS, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert len(error["message"]) < 1_000


async def test_a_service_that_stores_nothing_takes_no_turn(settings: Settings) -> None:
    item = {"type": "message", "role": "user", "content": "Hello"}
    async with serving(settings.model_copy(update={"store": False})) as inside, inside.http() as http:
        refused(await http.post(TURNS, json={"turn": "", "seal": ""}), 400, "turn", "unsupported_parameter")
        history = {"history": "h", "id": "1", "items": [item]}
        answer = await http.post("/console/api/histories", json=history)
        refused(answer, 400, "items", "unsupported_parameter")
