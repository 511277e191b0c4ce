"""The Conversations API as the official client uses it: every route, its pages, forks, and what it refuses."""

from collections.abc import Callable
from typing import Any

import msgspec
import openai
import pytest
from openai import OpenAI

from service.api.conversation import New
from service.entrance import Entry
from service.process import Settings, close_service, open_service
from service.responses.edit_conversation import begin
from service.responses.make import NO_KEY
from service.responses.service import Caller, Service
from service.web.queries import OrderedQuery
from service.web.routes.conversations import AT_ONCE, MAX_LOOKED_AT, page_of_conversations
from tests.support.service.inside import serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served, ServiceProcess

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


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "nonsense"}, "items[0].type"),
        ({"type": "item_reference", "id": "msg_1"}, "items[0].id"),
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


def test_a_refused_part_is_named_by_its_place_and_the_type_that_can_be_sent_by_its_name(
    service: ServiceProcess,
) -> None:
    items: Any = [{"role": "user", "content": [{"type": "input_audio"}]}]
    error = refused(service.client().conversations.create, items=items)
    assert error.param == "items[0].content[0].type"
    assert "'items[0].content[0].type' = input_audio" in error.message
    assert "'input_text'" in error.message


@pytest.mark.parametrize(
    "item",
    [
        b'{"id": "\xff", "role": "user", "content": "x"}',
        b'{"id": "\\ud800", "role": "user", "content": "x"}',
        b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}",
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


# --- lists ---


def conversations_of(client: OpenAI, **parameters: Any) -> Any:
    """A page of the tenant's conversations, by what an official client has for routes that it doesn't know."""
    return client.get("/conversations", cast_to=object, options={"params": parameters})


@pytest.fixture
def own(beside: Callable[..., Served]) -> OpenAI:
    """A client of a service with two shards that has no conversations yet."""
    return beside(shards=2).client()


def test_all_conversations_are_listed_page_by_page_the_newest_first(own: OpenAI) -> None:
    assert conversations_of(own) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    made = [own.conversations.create(metadata={"number": str(number)}) for number in range(25)]
    for order, expected in (("desc", made[::-1]), ("asc", made)):
        page, found = conversations_of(own, order=order, limit=10), []
        assert page["data"] == [each.model_dump() for each in expected[:10]]
        while True:
            assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
            found += [each["id"] for each in page["data"]]
            if not page["has_more"]:
                break
            page = conversations_of(own, order=order, limit=10, after=page["last_id"])
        assert found == [each.id for each in expected]
    assert len(conversations_of(own)["data"]) == 20


def test_a_filter_by_metadata_finds_those_that_have_all_of_it(own: OpenAI) -> None:
    made = [own.conversations.create(metadata={"even": str(n % 2 == 0), "third": str(n % 3 == 0)}) for n in range(24)]
    for wanted, expected in (
        ({"even": "True"}, made[::2]),
        ({"even": "True", "third": "True"}, made[::6]),
        ({"even": "true"}, []),
        ({"other": "True"}, []),
    ):
        found, after = [], {}
        while True:
            page = conversations_of(own, metadata=wanted, limit=5, order="asc", **after)
            assert len(page["data"]) <= 5
            found += [each["id"] for each in page["data"]]
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        assert found == [each.id for each in expected]


def test_another_tenants_conversations_are_not_listed(tenants: Served) -> None:
    acme, globex = tenants.client(ACME_KEY), tenants.client(GLOBEX_KEY)
    theirs = acme.conversations.create(metadata={"whose": "acme's"}).id
    assert conversations_of(acme, metadata={"whose": "acme's"}, limit=1)["data"][0]["id"] == theirs
    assert conversations_of(globex, metadata={"whose": "acme's"})["data"] == []
    assert str(refused(conversations_of, globex, after=theirs)).replace(theirs, UNKNOWN) == str(
        refused(conversations_of, globex, after=UNKNOWN)
    )


async def pages_of(service: Service, wanted: dict[str, str]) -> list[tuple[int, str | None, bool]]:
    """How many each page of a filter has, where the next goes on, and whether there is one."""
    pages: list[tuple[int, str | None, bool]] = []
    while not pages or pages[-1][-1]:
        after = pages[-1][1] if pages else None
        query = OrderedQuery(limit=3, order="asc", after=after)
        page = await page_of_conversations(service.conversations, "acme", query, wanted)
        pages.append((len(page.data), page.last_id, page.has_more))
    return pages


async def test_a_filter_that_matches_little_goes_on_from_where_it_was(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = open_service(settings)
    ids: list[str] = []
    for number in range(2 * MAX_LOOKED_AT + 50):
        metadata = {"found": "yes"} if number == MAX_LOOKED_AT + 30 else {}
        new = New(msgspec.Raw(b"[]"), metadata, None)
        begun = await begin(service, Caller(Entry("acme")), new, NO_KEY.name, tell=lambda tools, items: None)
        ids.append(begun.id)
    assert await pages_of(service, {"found": "yes"}) == [
        (0, ids[MAX_LOOKED_AT - 1], True),
        (1, ids[2 * MAX_LOOKED_AT - 1], True),
        (0, None, False),
    ]
    monkeypatch.setattr("service.web.routes.conversations.MAX_LOOKED_AT_BYTES", 1)
    assert (await pages_of(service, {"found": "yes"}))[0] == (0, ids[AT_ONCE - 1], True)
    await close_service(service)


# --- forks ---

ADA: Any = {"role": "user", "content": "My name is Ada."}
EVE: Any = {"role": "user", "content": "My name is Eve."}


def fork(client: OpenAI, source: Any, **options: Any) -> Any:
    return client.conversations.create(extra_body={"harmonium": {"fork_of": source}}, **options)


def refused_fork(client: OpenAI, source: Any, **options: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as refusal:
        fork(client, source, **options)
    return refusal.value


def spoken(client: OpenAI, id: str) -> list[str]:
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
    assert spoken(client, source.id)[:3] == spoken(client, made.id)[:3]
    assert spoken(client, source.id)[3:] == ["My name is Eve."]
    assert spoken(client, made.id)[3:] == ["Tell me: what is my name?", here.output_text]


def test_a_fork_of_a_response_has_what_was_said_until_then(service: ServiceProcess) -> None:
    client = service.client()
    first = client.responses.create(model=MODEL, input="My name is Ada.")
    second = client.responses.create(model=MODEL, input="My name is Eve.", previous_response_id=first.id)
    made = fork(client, first.id)
    assert spoken(client, made.id) == ["My name is Ada.", first.output_text]
    third = client.responses.create(model=MODEL, input="What is my name?", conversation=made.id)
    assert "Ada" in third.output_text
    assert client.responses.retrieve(second.id).id == second.id


@pytest.mark.parametrize("source", ["conv_1", "resp_1", "", "x" * 300, "conv_00636f6e766572" + "0" * 34])
def test_what_is_not_there_is_not_forked(service: ServiceProcess, source: str) -> None:
    error = refused_fork(service.client(), source)
    assert (error.status_code, error.code, error.param) == (404, None, "harmonium.fork_of")
    assert source[:100] in error.message


def test_another_tenants_are_not_forked(tenants: ServiceProcess) -> None:
    acme, globex = tenants.client(ACME_KEY), tenants.client(GLOBEX_KEY)
    for source in (acme.conversations.create().id, acme.responses.create(model=MODEL, input="hi").id):
        assert refused_fork(globex, source).status_code == 404
        assert fork(acme, source).id


def test_a_response_that_is_under_way_is_not_forked(beside: Callable[..., Served]) -> None:
    client = beside(demo_tokens_per_second=1).client()
    waiting = client.responses.create(model=MODEL, input="Tell me a story.", background=True)
    error = refused_fork(client, waiting.id)
    assert (error.status_code, error.param) == (400, "harmonium.fork_of")
    assert client.responses.cancel(waiting.id).status == "cancelled"


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


async def test_a_service_that_stores_nothing_stores_no_conversation(settings: Settings) -> None:
    async with serving(settings.model_copy(update={"store": False})) as inside, inside.http() as http:
        for body in ({}, {"items": [USER]}):
            answer = await http.post("/v1/conversations", json=body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "unsupported_parameter")
        assert (await http.get("/v1/conversations")).json()["data"] == []
