"""Turns over HTTP as a file has them: they come back as they were, to whom they were, and nothing else does."""

import json
import os
import re
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.console.administered import ADMIN_KEY, admin, with_key
from tests.support.pictures import png, said
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served, ServiceProcess

TREES, TURNS = "/console/api/trees", "/console/api/turns"
SEAL_KEY = "a-seal-key-of-more-than-32-characters"
MAX_BODY = 64 << 10
UNKNOWN = "resp_" + "0" * 46 + "aa"

Pair = tuple[Served, Served]


@pytest.fixture
def pair(beside: Callable[..., Served]) -> Pair:
    """Two services with stores of their own and the same seal key."""
    slow = {"seal_keys": SEAL_KEY, "demo_tokens_per_second": 200}
    return beside(**slow), beside(**slow, shards=4)


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


def test_a_tree_comes_back_with_its_ids_its_items_and_what_the_model_knew(pair: Pair) -> None:
    one, other = pair
    client = one.client()
    first = client.responses.create(model=MODEL, input="My name is Ada.")
    second = client.responses.create(model=MODEL, input="Count to 3.", previous_response_id=first.id)
    tool: Any = {"type": "function", "name": "look_up", "parameters": {"type": "object"}}
    fork = client.responses.create(
        model=MODEL,
        input="Use the look_up tool.",
        previous_response_id=first.id,
        tools=[tool],
        metadata={"über": '"\n'},
    )
    turns = exported(one.http(), second.id)
    assert [turn["id"] for turn in turns] == [first.id, second.id, fork.id]
    assert [turn["parent"] for turn in turns] == [None, first.id, first.id]
    assert {turn["root"] for turn in turns} == {first.id}
    for turn in turns:
        assert brought(other.http(), turn).json() == {
            "id": turn["id"],
            "new": True,
            "deleted": False,
            "object": "console.turn.imported",
        }
        assert brought(other.http(), turn).json()["new"] is False
    for id in (first.id, second.id, fork.id):
        for path in (f"/v1/responses/{id}", f"/v1/responses/{id}/input_items"):
            assert other.http().get(path).content == one.http().get(path).content
        assert (
            turns[[turn["id"] for turn in turns].index(id)]["response"] == one.http().get(f"/v1/responses/{id}").json()
        )
    asked = other.client().responses.create(model=MODEL, input="What is my name?", previous_response_id=second.id)
    assert "Ada" in asked.output_text
    assert asked.usage is not None
    alike = client.responses.create(model=MODEL, input="What is my name?", previous_response_id=second.id)
    assert alike.usage is not None
    assert asked.usage.input_tokens == alike.usage.input_tokens


def test_what_was_deleted_is_unreadable_and_still_known(pair: Pair) -> None:
    one, other = pair
    client = one.client()
    first = client.responses.create(model=MODEL, input="My name is Ada.")
    second = client.responses.create(model=MODEL, input="Count to 3.", previous_response_id=first.id)
    client.responses.delete(first.id)
    turns = exported(one.http(), second.id)
    assert [(turn["deleted"], turn["response"], turn["input"], turn["seal"]) for turn in turns[:1]] == [
        (True, None, None, None)
    ]
    assert turns[0]["turn"].startswith("hs_")
    for turn in turns:
        assert brought(other.http(), turn).status_code == 200
    assert other.http().get(f"/v1/responses/{first.id}").status_code == 404
    asked = other.client().responses.create(model=MODEL, input="What is my name?", previous_response_id=second.id)
    assert "Ada" in asked.output_text


def test_a_conversation_comes_back_under_its_id(pair: Pair) -> None:
    one, other = pair
    client = one.client()
    conversation = client.conversations.create(
        metadata={"who": "ada"}, items=[{"role": "user", "content": "My name is Ada."}]
    )
    client.responses.create(model=MODEL, input="Count to 3.", conversation=conversation.id)
    turns = exported(one.http(), conversation.id)
    assert [turn["kind"] for turn in turns] == ["items", "response", "conversation"]
    for turn in turns:
        assert brought(other.http(), turn).status_code == 200
    for path in (f"/v1/conversations/{conversation.id}", f"/v1/conversations/{conversation.id}/items"):
        assert other.http().get(path).content == one.http().get(path).content
    asked = other.client().responses.create(model=MODEL, input="What is my name?", conversation=conversation.id)
    assert "Ada" in asked.output_text


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


@pytest.mark.parametrize("archive", ["sqlite", "none"])
def test_a_key_without_the_right_neither_moves_a_turn_nor_learns_whether_it_is_there(
    beside: Callable[..., Served], archive: str
) -> None:
    service = beside(admin_key=ADMIN_KEY, archive_url=archive)

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
        for rest in ("", "/tokens"):
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
    assert (came["new"], came["deleted"]) == ((True, False) if archive == "none" else (False, True))


def test_what_was_changed_comes_back_nowhere(service: Served) -> None:
    http = service.http()
    one, other = (
        exported(http, service.client().responses.create(model=MODEL, input=text).id)[0]
        for text in ("My name is Ada.", "My name is Bo.")
    )
    assert b64decode(one["turn"])
    for name in ("turn", "seal"):
        for at in (5, len(one[name]) // 2, -9):
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
        (b"{", None),
        (b"[]", None),
        (b"\xff", None),
        (b"null", None),
        (b"[" * 100_000, None),
        (b"{}", "turn"),
        (b'{"turn":null}', "turn"),
        (b'{"turn":1,"seal":"hs_"}', "turn"),
        (b'{"turn":["a"],"seal":"hs_"}', "turn"),
        (b'{"turn":"","seal":1}', "seal"),
        (b'{"turn":""}', "turn"),
        (b'{"turn":"","seal":""}', "seal"),
        (b'{"turn":"AAAA","seal":"hs_"}', "seal"),
        (b'{"turn":"AAAA","seal":"hs_AAAA"}', "seal"),
        (b'{"turn":"AAAA","seal":"hs_\\u0000"}', "seal"),
        (b'{"turn":"hs_AAAA"}', "turn"),
        (b'{"turn":"hs_' + b"A" * 3_000_000 + b'"}', "turn"),
        (b'{"turn":"\\ud800","seal":"x"}', None),
        (b'{"turn":"\xc3\xa4","seal":"\xc3\xa4"}', "seal"),
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


@pytest.mark.parametrize("id", ["x", "resp_", "resp_" + "g" * 48, "conv_" + "0" * 48, "resp_ff" + "0" * 46, "%00"])
def test_an_id_that_nothing_has_is_not_found(service: Served, id: str) -> None:
    assert service.http().get(f"{TURNS}/{id}").status_code == 404


def test_what_can_not_come_back_now_says_what_to_do(pair: Pair) -> None:
    one, other = pair
    client = one.client()
    first = client.responses.create(model=MODEL, input="My name is Ada.")
    second = client.responses.create(model=MODEL, input="Count to 3.", previous_response_id=first.id)
    turns = exported(one.http(), second.id)
    message = refused(brought(other.http(), turns[1]), 404, "turn", "previous_response_not_found")
    assert first.id in message
    assert "order" in message
    queued = one.http().post("/v1/responses", json={"model": MODEL, "input": "Count to 60.", "background": True})
    assert "under way" in refused(one.http().get(f"{TURNS}/{queued.json()['id']}"), 400, "id", None)
    line = json.dumps(turns[0])
    assert other.http().post(TURNS, content=line, headers={"content-type": "application/json"}).status_code == 200


def image(size: int) -> list[dict[str, Any]]:
    """Input with an image that no compression makes smaller."""
    return said(png(1, 1, comment=os.urandom(size)))


def with_image(service: Served, size: int) -> str:
    """A conversation that begins with one; the id of the turn that has it."""
    made = service.http().post("/v1/conversations", json={"items": image(size)})
    assert made.status_code == 200, made.text
    return str(service.http().get(f"{TREES}/{made.json()['id']}").json()["turns"][0]["id"])


def test_what_was_as_large_as_a_request_may_be_comes_back(beside: Callable[..., Served]) -> None:
    small = beside(max_body_bytes=MAX_BODY)
    overhead = len(json.dumps({"items": image(0)}))
    for spare in (0, 600):
        id = with_image(small, (MAX_BODY - overhead - spare) // 4 * 3)
        answer = small.http().get(f"{TURNS}/{id}")
        assert brought(small.http(), answer.json()).json() == {
            "id": id,
            "new": False,
            "deleted": False,
            "object": "console.turn.imported",
        }
    assert small.http().post(TURNS, json={"turn": "A" * 2 * MAX_BODY, "seal": "hs_"}).status_code == 413


def test_an_id_of_a_store_with_more_shards_is_refused_by_name(beside: Callable[..., Served]) -> None:
    many, one = beside(seal_keys=SEAL_KEY, shards=256), beside(seal_keys=SEAL_KEY, shards=1)
    ids = (many.client().responses.create(model=MODEL, input="Hello").id for _ in range(20))
    (turn,) = exported(many.http(), next(id for id in ids if not id.startswith("resp_00")))
    assert "HARMONIUM_SHARDS" in refused(brought(one.http(), turn), 400, "turn", "invalid_value")


def test_many_large_turns_at_once_take_no_more_memory_than_some(start: Callable[..., ServiceProcess]) -> None:
    service = start()
    id = with_image(service, 5_000_000)
    before = peak_mib(service)

    def status(_: int) -> int:
        return httpx.get(f"{service.url}{TURNS}/{id}", timeout=30, trust_env=False).status_code

    with ThreadPoolExecutor(20) as pool:
        statuses = set(pool.map(status, range(20)))
    assert 200 in statuses <= {200, 503}
    assert peak_mib(service) - before < 300


def peak_mib(service: ServiceProcess) -> int:
    """The most memory that the process of a service had so far."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) >> 10
