"""The Conversations API as the official client uses it: every route, its pages, and what it refuses."""

from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess

UNKNOWN = "conv_00" + "636f6e766572" + "0" * 34
USER: Any = {"role": "user", "content": "My name is Ada."}
FORMS = (UNKNOWN, "conv_1", "conv_" + "0" * 48, "resp_" + "0" * 48, "x" * 200)


def said(text: str) -> Any:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def texts(client: OpenAI, id: str, **options: Any) -> list[str]:
    """The texts of a conversation's items, as the client pages through them."""
    return [item.content[0].text for item in client.conversations.items.list(id, **options)]  # type: ignore[union-attr]


def refused(call: Any, *args: Any, **options: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as refusal:
        call(*args, **options)
    return refusal.value


def test_a_conversation_lives(service: ServiceProcess) -> None:
    client = service.client()
    made = client.conversations.create(metadata={"topic": "demo"})
    assert (made.object, made.metadata) == ("conversation", {"topic": "demo"})
    assert made.id.startswith("conv_")
    assert client.conversations.retrieve(made.id) == made
    changed = client.conversations.update(made.id, metadata={"other": "1"})
    assert (changed.id, changed.created_at, changed.metadata) == (made.id, made.created_at, {"other": "1"})
    assert client.conversations.retrieve(made.id) == changed
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    assert refused(client.conversations.retrieve, made.id).status_code == 404


def test_metadata_is_replaced_and_null_is_none(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(metadata={"a": "1", "b": "2"}).id
    assert client.conversations.update(id, metadata={"b": "3"}).metadata == {"b": "3"}
    assert client.conversations.update(id, metadata=None).metadata == {}


@pytest.mark.parametrize(
    "metadata", [{str(n): "x" for n in range(17)}, {"k" * 65: "x"}, {"k": "v" * 513}, {"k": 1}, ["k"]], ids=str
)
def test_metadata_has_its_limits(service: ServiceProcess, metadata: Any) -> None:
    client = service.client()
    id = client.conversations.create(metadata={"k" * 64: "v" * 512}).id
    for error in (
        refused(client.conversations.create, metadata=metadata),
        refused(client.conversations.update, id, metadata=metadata),
    ):
        assert error.status_code == 400
        assert str(error.param).startswith("metadata")
    assert client.conversations.retrieve(id).metadata == {"k" * 64: "v" * 512}


def test_an_update_says_what_it_changes(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create().id
    answer = service.http().post(f"/v1/conversations/{id}", json={})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "metadata")
    answer = service.http().post(f"/v1/conversations/{id}", json={"metadata": {}, "name": "x"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "name")


@pytest.mark.parametrize("id", FORMS)
def test_what_is_not_there_is_not_found_whatever_its_form(service: ServiceProcess, id: str) -> None:
    client = service.client()
    items = client.conversations.items
    calls: list[tuple[Any, dict[str, Any]]] = [
        (client.conversations.retrieve, {}),
        (client.conversations.update, {"metadata": {}}),
        (client.conversations.delete, {}),
        (items.list, {}),
        (items.create, {"items": [USER]}),
    ]
    for call, options in calls:
        error = refused(call, id, **options)
        assert (error.status_code, error.type, error.code, error.param) == (404, "invalid_request_error", None, None)
        assert error.message.endswith(f"Conversation with id '{id[:100]}' not found.")
    error = refused(client.responses.create, model=MODEL, input="hi", conversation=id)
    assert (error.status_code, error.code) == (404, None)


def test_a_conversation_of_another_tenant_is_as_unknown_as_one_that_never_was(tenants: ServiceProcess) -> None:
    acme, globex = tenants.client(ACME_KEY), tenants.client(GLOBEX_KEY)
    id = acme.conversations.create(items=[USER]).id
    item = acme.conversations.items.list(id).data[0].id
    for call in (globex.conversations.retrieve, globex.conversations.delete, globex.conversations.items.list):
        assert str(refused(call, id)).replace(id, UNKNOWN) == str(refused(call, UNKNOWN))
    assert refused(globex.conversations.items.retrieve, str(item), conversation_id=id).status_code == 404
    own = globex.conversations.create().id
    assert refused(globex.conversations.items.retrieve, str(item), conversation_id=own).status_code == 404
    assert refused(globex.conversations.items.list, own, after=item).param == "after"
    assert acme.conversations.retrieve(id).id == id


def test_a_conversation_is_no_response_and_a_response_no_conversation(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(items=[USER]).id
    item = str(client.conversations.items.list(id).data[0].id)
    by_hand = f"resp_{item.removeprefix('msg_')[:48]}"
    for name in (id, id.replace("conv_", "resp_"), by_hand):
        for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
            assert refused(call, name).status_code == 404
        assert refused(client.responses.input_items.list, name).status_code == 404
    for name in (id.replace("conv_", "resp_"), by_hand):
        for call in (client.responses.create, client.responses.input_tokens.count):
            error = refused(call, model=MODEL, input="hi", previous_response_id=name)
            assert (error.status_code, error.param) == (400, "previous_response_id")
    response = client.responses.create(model=MODEL, input="hi")
    assert refused(client.conversations.retrieve, response.id.replace("resp_", "conv_")).status_code == 404


def test_items_are_added_in_the_order_sent_and_listed_newest_first(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(items=[said("one")]).id
    added = client.conversations.items.create(id, items=[said("two"), {"role": "assistant", "content": "three"}])
    assert (added.object, added.has_more) == ("list", False)
    assert [item.type for item in added.data] == ["message", "message"]
    assert (added.first_id, added.last_id) == (added.data[0].id, added.data[1].id)
    assert texts(client, id) == ["three", "two", "one"]
    assert texts(client, id, order="asc") == ["one", "two", "three"]
    for item in client.conversations.items.list(id):
        assert item.status == "completed"  # type: ignore[union-attr]
        assert client.conversations.items.retrieve(str(item.id), conversation_id=id) == item


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_have_every_item_once(service: ServiceProcess, order: Any) -> None:
    client = service.client()
    names = [f"item {number}" for number in range(23)]
    id = client.conversations.create(items=[said(name) for name in names[:3]]).id
    client.conversations.items.create(id, items=[said(name) for name in names[3:]])
    expected = names if order == "asc" else names[::-1]
    assert texts(client, id, order=order, limit=5) == expected
    page = client.conversations.items.list(id, order=order, limit=23)
    assert (len(page.data), page.has_more) == (23, False)
    assert client.conversations.items.list(id).has_more


def test_a_page_begins_after_an_item_of_the_conversation(service: ServiceProcess) -> None:
    client = service.client()
    id, other = (client.conversations.create(items=[said("one"), said("two")]).id for _ in range(2))
    first = str(client.conversations.items.list(id, order="asc").data[0].id)
    assert texts(client, id, order="asc", after=first) == ["two"]
    for after in (str(client.conversations.items.list(other).data[0].id), "msg_1"):
        error = refused(client.conversations.items.list, id, after=after)
        assert (error.status_code, error.param) == (400, "after")


def test_at_most_twenty_items_are_added_at_once(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(items=[said("x")] * 20).id
    for error in (
        refused(client.conversations.create, items=[said("x")] * 21),
        refused(client.conversations.items.create, id, items=[said("x")] * 21),
        refused(client.conversations.items.create, id, items=[]),
    ):
        assert (error.status_code, error.param) == (400, "items")
    assert len(texts(client, id, limit=100)) == 20


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "nonsense"}, "items[0].type"),
        ({"role": "user"}, "items[0].content"),
        ({"type": "item_reference", "id": "msg_1"}, "items[0].id"),
        ({"type": "configuration_update", "reasoning": {"effort": "great"}}, "items[0].reasoning.effort"),
        ({"type": "function_call_output", "call_id": "c", "output": "4"}, "items"),
        (5, "items[0]"),
    ],
    ids=str,
)
def test_a_bad_item_is_named_by_its_place_and_adds_nothing(service: ServiceProcess, item: Any, param: str) -> None:
    client = service.client()
    id = client.conversations.create(items=[said("x")]).id
    error = refused(client.conversations.items.create, id, items=[item])
    assert (error.status_code, error.param) == (400, param), error.message
    assert "input" not in error.message
    assert refused(client.conversations.create, items=[item]).param == param
    assert texts(client, id) == ["x"]


@pytest.mark.parametrize(
    "item",
    [
        b'{"id": "\xff", "role": "user", "content": "x"}',
        b'{"id": "\\ud800", "role": "user", "content": "x"}',
        b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b"null",
        b"{",
    ],
)
def test_what_is_no_item_is_refused_wherever_it_is_sent(service: ServiceProcess, item: bytes) -> None:
    http, json = service.http(), {"content-type": "application/json"}
    id = service.client().conversations.create().id
    for path in ("/v1/conversations", f"/v1/conversations/{id}/items"):
        answer = http.post(path, content=b'{"items": [' + item + b"]}", headers=json)
        assert answer.status_code == 400, answer.text
    assert texts(service.client(), id) == []


def test_an_item_that_is_in_the_conversation_is_not_added_again(service: ServiceProcess) -> None:
    client = service.client()
    id, other = client.conversations.create(items=[said("one")]).id, client.conversations.create().id
    item = client.conversations.items.list(id).data[0]
    for again in (item.to_dict(), {"type": "item_reference", "id": item.id}):
        error = refused(client.conversations.items.create, id, items=[again])
        assert (error.status_code, error.code, error.param) == (400, "item_already_in_conversation", "items")
        client.conversations.items.create(other, items=[again])
    assert texts(client, other) == ["one", "one"]


def test_a_call_and_its_output_may_be_added_one_after_the_other(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(items=[said("What is the weather?")]).id
    call: Any = {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"}
    client.conversations.items.create(id, items=[call])
    client.conversations.items.create(id, items=[{"type": "function_call_output", "call_id": "c1", "output": "sunny"}])
    kinds = [item.type for item in client.conversations.items.list(id, order="asc")]
    assert kinds == ["message", "function_call", "function_call_output"]
    assert client.responses.create(model=MODEL, input="Go on.", conversation=id).status == "completed"


def test_an_unknown_item_is_not_found(service: ServiceProcess) -> None:
    client = service.client()
    id = client.conversations.create(items=[said("one")]).id
    item = str(client.conversations.items.list(id).data[0].id)
    for name in ("msg_1", item[:-1] + "7", "msg_" + "0" * 52):
        error = refused(client.conversations.items.retrieve, name, conversation_id=id)
        assert (error.status_code, error.param) == (404, "item_id")


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "order=up", "include[]=x"])
def test_a_bad_page_is_refused(service: ServiceProcess, query: str) -> None:
    id = service.client().conversations.create().id
    answer = service.http().get(f"/v1/conversations/{id}/items?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0].rstrip("[]"))


def test_what_is_not_served_yet_says_so(service: ServiceProcess) -> None:
    http = service.http()
    assert http.post("/open-responses/v1/conversations", json={}).status_code == 404
