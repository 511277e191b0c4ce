"""Ids over HTTP: whatever belongs to one tree says so, and every id shows that this store has made it."""

from typing import Any

from openai import OpenAI

from store.ids import Ids, tree_of
from store.keys import HEX_DIGITS, Keyspace, digits_of, id_of
from tests.support.service.process import MODEL, ServiceProcess
from tests.web.test_forks import fork

ADA: Any = {"role": "user", "content": "My name is Ada."}


def response(client: OpenAI, **wanted: Any) -> Any:
    return client.responses.create(model=MODEL, input="Hello.", **wanted)


def ids_of(service: ServiceProcess) -> Ids:
    with service.redis() as redis:
        (name,) = redis.keys("*{00}:secret")
        secret = redis.get(name)
    ids = Ids(Keyspace("harmonium", 256), bytes)
    ids.prove_by(secret)
    return ids


def test_all_ids_of_a_tree_lead_to_it(service: ServiceProcess) -> None:
    client = service.client()
    conversation = client.conversations.create(items=[ADA])
    first = response(client, conversation=conversation.id)
    fork_of_it, branch = fork(client, conversation.id), fork(client, first.id)
    others = [
        response(client, previous_response_id=first.id),
        response(client, previous_response_id=first.id, store=False),
        response(client, previous_response_id=first.id, background=True),
        response(client, conversation=fork_of_it.id),
        response(client, conversation=branch.id),
    ]
    client.conversations.items.create(conversation.id, items=[ADA])
    items = [item.id for item in client.conversations.items.list(conversation.id)]
    ids = [conversation.id, fork_of_it.id, branch.id, *(each.id for each in (first, *others)), *items]
    whole = [digits_of(id)[:HEX_DIGITS] for id in ids]
    assert {tree_of(digits) for digits in whole} == {tree_of(digits_of(conversation.id))}
    assert {digits[:2] for digits in whole} == {digits_of(conversation.id)[:2]}
    known = ids_of(service)
    assert [id for id, digits in zip(ids, whole, strict=True) if not known.made(digits)] == []


def test_an_id_that_nobody_made_is_not_found_whether_or_not_it_fails_the_check(service: ServiceProcess) -> None:
    known, shard = ids_of(service), "00"
    for digits in (known.new(shard=int(shard)), shard + "7" * 46):
        found = service.http().get(f"/v1/responses/{id_of(digits)}")
        assert (found.status_code, found.json()["error"]["param"]) == (404, "response_id")
