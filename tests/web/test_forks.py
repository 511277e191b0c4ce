"""Forks of conversations and of responses: a second name for what was said, as the official client asks for one."""

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served, ServiceProcess

ADA: Any = {"role": "user", "content": "My name is Ada."}
EVE: Any = {"role": "user", "content": "My name is Eve."}


def fork(client: OpenAI, source: Any, **options: Any) -> Any:
    """A fork, as the official client asks for it."""
    return client.conversations.create(extra_body={"harmonium": {"fork_of": source}}, **options)


def refused(client: OpenAI, source: Any, **options: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as refusal:
        fork(client, source, **options)
    return refusal.value


def texts(client: OpenAI, id: str) -> list[str]:
    """What was said in a conversation, oldest first."""
    items: Any = client.conversations.items.list(id, order="asc")
    return [part.text for item in items if item.type == "message" for part in item.content]


def test_a_fork_has_all_items_and_both_go_on(service: ServiceProcess) -> None:
    client = service.client()
    source = client.conversations.create(items=[ADA], metadata={"a": "1"})
    client.responses.create(model=MODEL, input="What is my name?", conversation=source.id)
    made = fork(client, source.id, metadata={"b": "2"})
    assert (made.object, made.metadata) == ("conversation", {"b": "2"})
    assert made.id != source.id
    items = [client.conversations.items.list(id, order="asc").data for id in (source.id, made.id)]
    assert items[0] == items[1] != []
    here = client.responses.create(model=MODEL, input="Tell me: what is my name?", conversation=made.id)
    assert "Ada" in here.output_text
    client.conversations.items.create(source.id, items=[EVE])
    assert texts(client, source.id)[:3] == texts(client, made.id)[:3]
    assert texts(client, source.id)[3:] == ["My name is Eve."]
    assert texts(client, made.id)[3:] == ["Tell me: what is my name?", here.output_text]


def test_a_fork_of_a_response_has_what_was_said_until_then(service: ServiceProcess) -> None:
    client = service.client()
    first = client.responses.create(model=MODEL, input="My name is Ada.")
    second = client.responses.create(model=MODEL, input="My name is Eve.", previous_response_id=first.id)
    made = fork(client, first.id)
    assert texts(client, made.id) == ["My name is Ada.", first.output_text]
    third = client.responses.create(model=MODEL, input="What is my name?", conversation=made.id)
    assert "Ada" in third.output_text
    assert client.responses.retrieve(second.id).id == second.id


def test_a_fork_may_begin_with_items_of_its_own(service: ServiceProcess) -> None:
    client = service.client()
    source = client.conversations.create(items=[ADA])
    made = fork(client, source.id, items=[EVE] * 20)
    assert texts(client, made.id) == ["My name is Ada.", *["My name is Eve."] * 20]
    assert texts(client, source.id) == ["My name is Ada."]
    assert refused(client, source.id, items=[EVE] * 21).param == "items"
    own = client.conversations.items.list(source.id).data[0]
    assert refused(client, source.id, items=[own.model_dump()]).code == "item_already_in_conversation"


def test_a_call_may_be_answered_in_a_fork(service: ServiceProcess) -> None:
    client = service.client()
    call: Any = {"type": "function_call", "call_id": "call_1", "name": "look_up", "arguments": "{}"}
    source = client.conversations.create(items=[ADA, call])
    made = fork(client, source.id, items=[{"type": "function_call_output", "call_id": "call_1", "output": "42"}])
    assert len(client.conversations.items.list(made.id).data) == 3
    assert client.responses.create(model=MODEL, input="Well?", conversation=made.id).status == "completed"


@pytest.mark.parametrize("source", ["conv_1", "resp_1", "", "x" * 300, "conv_00636f6e766572" + "0" * 34])
def test_what_is_not_there_is_not_forked(service: ServiceProcess, source: str) -> None:
    error = refused(service.client(), source)
    assert (error.status_code, error.code, error.param) == (404, None, "harmonium.fork_of")
    assert source[:100] in error.message


def test_another_tenants_are_not_forked(tenants: ServiceProcess) -> None:
    acme, globex = tenants.client(ACME_KEY), tenants.client(GLOBEX_KEY)
    for source in (acme.conversations.create().id, acme.responses.create(model=MODEL, input="hi").id):
        assert refused(globex, source).status_code == 404
        assert fork(acme, source).id


@pytest.mark.parametrize("harmonium", [5, "conv_1", ["conv_1"], {"fork_of": 5}, {"fork": "conv_1"}], ids=str)
def test_what_is_no_fork_is_refused(service: ServiceProcess, harmonium: Any) -> None:
    answer = service.http().post("/v1/conversations", json={"harmonium": harmonium})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("harmonium")


@pytest.mark.parametrize("harmonium", [None, {}, {"fork_of": None}], ids=str)
def test_a_fork_of_nothing_is_a_new_conversation(service: ServiceProcess, harmonium: Any) -> None:
    answer = service.http().post("/v1/conversations", json={"harmonium": harmonium})
    assert (answer.status_code, answer.json()["metadata"]) == (200, {})


def test_a_response_that_is_under_way_is_not_forked(beside: Callable[..., Served]) -> None:
    client = beside(demo_tokens_per_second=1).client()
    waiting = client.responses.create(model=MODEL, input="Tell me a story.", background=True)
    error = refused(client, waiting.id)
    assert (error.status_code, error.param) == (400, "harmonium.fork_of")
    assert client.responses.cancel(waiting.id).status == "cancelled"
