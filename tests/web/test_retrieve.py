"""Stored responses: reading them again, deleting them, and listing what they were given."""

from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types.responses import Response

from tests.support.service.process import MODEL, ServiceProcess


def chain_of(client: OpenAI, *texts: str) -> list[Response]:
    """A conversation of one turn for each text."""
    turns: list[Response] = []
    for text in texts:
        after = turns[-1].id if turns else openai.omit
        turns.append(client.responses.create(model=MODEL, input=text, previous_response_id=after))
    return turns


def listed(client: OpenAI, id: str, **options: Any) -> list[str]:
    """The ids of all input items, page by page."""
    return [str(item.id) for item in client.responses.input_items.list(id, **options)]


def test_a_response_is_retrieved_byte_for_byte(service: ServiceProcess) -> None:
    http = service.http()
    created = http.post("/v1/responses", json={"model": MODEL, "input": "Count to 9.", "metadata": {"ü": "☃"}})
    id = created.json()["id"]
    assert http.get(f"/v1/responses/{id}").content == created.content
    assert http.get(f"/v1/responses/{id}").content == created.content


def test_a_deleted_response_is_gone_in_every_way(service: ServiceProcess) -> None:
    client, http = service.client(), service.http()
    id = client.responses.create(model=MODEL, input="hi").id
    gone = http.delete(f"/v1/responses/{id}")
    assert gone.json() == {"id": id, "object": "response.deleted", "deleted": True}
    for act in (client.responses.retrieve, client.responses.delete, client.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            act(id)


def test_a_finished_response_can_not_be_cancelled(service: ServiceProcess) -> None:
    client = service.client()
    id = client.responses.create(model=MODEL, input="hi").id
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        client.responses.cancel(id)
    with pytest.raises(openai.NotFoundError):
        client.responses.cancel("resp_" + "0" * 48)


def test_input_items_are_listed_newest_first_unless_asked_otherwise(service: ServiceProcess) -> None:
    client = service.client()
    texts = [f"message {number}" for number in range(7)]
    items: Any = [{"role": "user", "content": text} for text in texts]
    id = client.responses.create(model=MODEL, input=items).id
    down = client.responses.input_items.list(id)
    assert [item.content[0].text for item in down] == texts[::-1]
    assert listed(client, id, order="asc") == [str(item.id) for item in down][::-1]


def test_a_page_says_where_it_begins_and_ends(service: ServiceProcess) -> None:
    client = service.client()
    items: Any = [{"role": "user", "content": str(number)} for number in range(5)]
    id = client.responses.create(model=MODEL, input=items).id
    page = client.responses.input_items.list(id, order="asc", limit=2)
    ids = listed(client, id, order="asc")
    assert (page.first_id, page.last_id, page.has_more) == (ids[0], ids[1], True)
    rest = client.responses.input_items.list(id, order="asc", limit=3, after=ids[1])
    assert ([item.id for item in rest.data], rest.has_more) == (ids[2:], False)
    assert client.responses.input_items.list(id, order="asc", after=ids[-1]).data == []


def test_items_of_a_deleted_ancestor_are_no_longer_listed(service: ServiceProcess) -> None:
    client = service.client()
    turns = chain_of(client, "one", "two", "three")
    before = listed(client, turns[2].id, order="asc")
    gone = listed(client, turns[1].id, order="asc")[-1:] + [item.id for item in turns[1].output]
    client.responses.delete(turns[1].id)
    after = listed(client, turns[2].id, order="asc")
    assert after == [id for id in before if id not in gone]
    assert len(after) < len(before)


def test_a_page_of_enormous_items_ends_early_and_goes_on(service: ServiceProcess) -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "x" * 3_500_000}]}
    id, client = None, service.client()
    for _ in range(4):
        items: Any = [thought, {"role": "user", "content": "hi"}]
        id = client.responses.create(model=MODEL, input=items, previous_response_id=id).id
    first = client.responses.input_items.list(str(id), order="asc", limit=100)
    assert first.has_more
    assert 1 < len(first.data) < 14
    ids = [item.id for item in client.responses.input_items.list(str(id), order="asc", limit=100)]
    assert len(ids) == len(set(ids)) == 8 + 3 * 2
