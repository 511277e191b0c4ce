"""A tenant's conversations, page by page: their order, filters by metadata, and where a page ends."""

from collections.abc import Callable
from typing import Any

import msgspec
import openai
import pytest
from openai import OpenAI

from service.api.conversation import New
from service.process import close_service, open_service
from service.responses.edit_conversation import begin
from service.responses.service import Service
from service.settings.settings import Settings
from service.web.routes.conversations import AT_ONCE, MAX_LOOKED_AT, MAX_LOOKED_AT_BYTES, page_of_conversations
from service.web.routing import OrderedQuery
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served

UNKNOWN = "conv_00" + "636f6e766572" + "0" * 34


def refused(call: Any, *args: Any, **options: Any) -> openai.APIStatusError:
    with pytest.raises(openai.APIStatusError) as refusal:
        call(*args, **options)
    return refusal.value


def listed(client: OpenAI, **parameters: Any) -> Any:
    """A page of the tenant's conversations, by what an official client has for routes that it doesn't know."""
    return client.get("/conversations", cast_to=object, options={"params": parameters})


@pytest.fixture
def own(beside: Callable[..., Served]) -> OpenAI:
    """A client of a service with two shards that has no conversations yet."""
    return beside(shards=2).client()


def test_all_conversations_are_listed_page_by_page_the_newest_first(own: OpenAI) -> None:
    assert listed(own) == {"object": "list", "data": [], "first_id": None, "last_id": None, "has_more": False}
    made = [own.conversations.create(metadata={"number": str(number)}) for number in range(25)]
    for order, expected in (("desc", made[::-1]), ("asc", made)):
        page, found = listed(own, order=order, limit=10), []
        assert page["data"] == [each.model_dump() for each in expected[:10]]
        while True:
            assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
            found += [each["id"] for each in page["data"]]
            if not page["has_more"]:
                break
            page = listed(own, order=order, limit=10, after=page["last_id"])
        assert found == [each.id for each in expected]
    assert len(listed(own)["data"]) == 20


def test_a_list_shows_what_is_there_and_as_it_is(own: OpenAI) -> None:
    kept, gone = own.conversations.create(metadata={"a": "1"}), own.conversations.create()
    own.conversations.update(kept.id, metadata={"b": "2"})
    own.conversations.delete(gone.id)
    own.responses.create(model=MODEL, input="hi", conversation=kept.id)
    assert [(each["id"], each["metadata"]) for each in listed(own)["data"]] == [(kept.id, {"b": "2"})]
    assert listed(own, after=kept.id)["data"] == []
    assert refused(listed, own, after=gone.id).param == "after"


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
            page = listed(own, metadata=wanted, limit=5, order="asc", **after)
            assert len(page["data"]) <= 5
            found += [each["id"] for each in page["data"]]
            if not page["has_more"]:
                break
            after = {"after": page["last_id"]}
        assert found == [each.id for each in expected]


def test_any_text_may_be_looked_for(own: OpenAI) -> None:
    metadata = {"a key [with] = & more": "été 日本 = &", "": "nothing"}
    id = own.conversations.create(metadata=metadata).id
    assert [each["id"] for each in listed(own, metadata=metadata)["data"]] == [id]


def test_another_tenants_conversations_are_not_listed(tenants: Served) -> None:
    acme, globex = tenants.client(ACME_KEY), tenants.client(GLOBEX_KEY)
    theirs = acme.conversations.create(metadata={"whose": "acme's"}).id
    assert listed(acme, metadata={"whose": "acme's"}, limit=1)["data"][0]["id"] == theirs
    assert listed(globex, metadata={"whose": "acme's"})["data"] == []
    assert str(refused(listed, globex, after=theirs)).replace(theirs, UNKNOWN) == str(
        refused(listed, globex, after=UNKNOWN)
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


async def test_a_filter_that_matches_little_goes_on_from_where_it_was(settings: Settings) -> None:
    service = open_service(settings)
    ids: list[str] = []
    for number in range(2 * MAX_LOOKED_AT + 50):
        metadata = {"found": "yes"} if number == MAX_LOOKED_AT + 30 else {}
        ids.append((await begin(service, "acme", New(msgspec.Raw(b"[]"), metadata, None))).id)
    assert await pages_of(service, {"found": "yes"}) == [
        (0, ids[MAX_LOOKED_AT - 1], True),
        (1, ids[2 * MAX_LOOKED_AT - 1], True),
        (0, None, False),
    ]
    await close_service(service)


async def test_a_filter_ends_a_page_after_so_many_bytes(settings: Settings) -> None:
    service = open_service(settings)
    metadata = {f"key {number}": "é" * 512 for number in range(16)}
    size = len(msgspec.json.encode(metadata))
    ids = [(await begin(service, "acme", New(msgspec.Raw(b"[]"), metadata, None))).id for _ in range(500)]
    most = -(-MAX_LOOKED_AT_BYTES // size // AT_ONCE) * AT_ONCE
    assert most < 400
    assert (await pages_of(service, {"found": "yes"}))[0] == (0, ids[most - 1], True)
    await close_service(service)
