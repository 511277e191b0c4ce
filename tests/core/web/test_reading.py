"""Responses as clients read them: as streams, again and by their ETag, with what is shown besides; and once deleted."""

import re
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, cast

import msgspec
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as some
from openai import OpenAI
from openai.types.responses import Response

from service.web.queries import OrderedQuery
from service.web.routes.input_items import TURNS_A_READ, page_of
from store.history.history import NOTHING_LISTED, ConversationHistoryStore
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, Served, ServiceProcess
from tests.support.service.streams import parsed, sent


def streamed(service: ServiceProcess, **body: object) -> list[dict[str, Any]]:
    answer = service.http().post("/v1/responses", json={"model": MODEL, "stream": True, **body})
    assert answer.status_code == 200, answer.text
    return parsed(answer.text)


def test_a_plain_answer_is_what_a_stream_ends_with(service: ServiceProcess) -> None:
    request = {"model": MODEL, "input": "Count to 30.", "instructions": "Be exact.", "metadata": {"a": "b"}}
    plain = service.http().post("/v1/responses", json=request).json()
    final = streamed(service, **request)[-1]["response"]
    for response in (plain, final):
        assert response.pop("id").startswith("resp_")
        for item in response["output"]:
            assert item.pop("id")
        for moment in ("created_at", "completed_at"):
            assert response.pop(moment)
    _, cached = [response["usage"].pop("input_tokens_details")["cached_tokens"] for response in (plain, final)]
    assert cached == (plain["usage"]["input_tokens"] - 1) // 16 * 16, "all whole blocks before the last token"
    assert plain == final


def test_a_stream_says_what_proxies_need_to_hear(service: ServiceProcess) -> None:
    answer = service.http().post("/v1/responses", json={"model": MODEL, "input": "hi", "stream": True})
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["x-request-id"].startswith("req_")


def test_silence_is_filled_with_events_that_clients_count_and_skip(beside: Callable[..., Served]) -> None:
    slow = beside(demo_tokens_per_second=10, keepalive_seconds=0.03)
    request: Any = {"model": MODEL, "input": "hi", "max_output_tokens": 16}
    made = slow.http().post("/v1/responses", json={**request, "stream": True, "background": True}).text
    id = parsed(made)[-1]["response"]["id"]
    with slow.client().responses.create(**request, stream=True, background=True) as begun:
        first = next(iter(begun))
        assert first.type == "response.created"
        second = first.response.id
    tail = slow.http().get(f"/v1/responses/{second}?stream=true&starting_after=1").text
    for text in (slow.http().post("/v1/responses", json={**request, "stream": True}).text, made, tail):
        assert sent(text)[-1]["type"] == "response.incomplete"
        numbers = [int(each) for each in re.findall(r'"sequence_number":(\d+)', text)]
        alive = re.findall(r'event: keepalive\ndata: {"type":"keepalive","sequence_number":(\d+)}\n\n', text)
        assert numbers == sorted(numbers)
        assert len(numbers) - len(set(numbers)) == len(alive) > 5, "each has the number of the event before it"
    assert "keepalive" not in slow.http().get(f"/v1/responses/{id}?stream=true").text
    with slow.client().responses.stream(**request) as stream:
        kinds = [event.type for event in stream]
    assert kinds[-1] == "response.incomplete"
    assert "keepalive" in kinds


# --- again ---


def listed(client: OpenAI, id: str, **options: Any) -> list[str]:
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


# --- with what is shown besides ---

SEALED: Any = ["reasoning.encrypted_content"]


def test_reasoning_is_sealed_for_whoever_asks_later(service: ServiceProcess) -> None:
    client = service.client()
    made = client.responses.create(model=MODEL, input="My boat is called Vesper.")
    assert made.output[0].type == "reasoning"
    assert not made.output[0].encrypted_content

    found = client.responses.retrieve(made.id, include=SEALED)
    assert found.output[0].type == "reasoning"
    assert found.output[0].encrypted_content
    assert found.output[0].content == made.output[0].content
    assert found.output[1:] == made.output[1:]
    assert client.responses.retrieve(made.id) == made

    replayed = [item.to_dict() for item in found.output]
    del replayed[0]["content"]
    again: Any = [
        {"role": "user", "content": "My boat is called Vesper."},
        *replayed,
        {"role": "user", "content": "Hi"},
    ]
    sent = client.responses.create(model=MODEL, input=again, store=False)
    chained = client.responses.create(model=MODEL, input="Hi", previous_response_id=made.id)
    assert sent.usage is not None
    assert chained.usage is not None
    assert sent.usage.input_tokens == chained.usage.input_tokens


# --- where the client has it already ---


def made(service: ServiceProcess, **options: object) -> str:
    body = {"model": MODEL, "input": "Count to 3.", **options}
    answer = service.http().post("/v1/responses", json=body)
    assert answer.status_code == 200
    return f"/v1/responses/{answer.json()['id']}"


def test_a_client_that_has_a_response_gets_no_body(service: ServiceProcess) -> None:
    http, path = service.http(), made(service)
    whole = http.get(path)
    assert whole.headers["cache-control"] == "private, no-cache"
    again = http.get(path, headers={"if-none-match": whole.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == whole.headers["etag"]
    assert again.headers["cache-control"] == "private, no-cache"
    assert again.headers["x-request-id"].startswith("req_")
    assert "content-type" not in again.headers
    assert http.get(path).content == whole.content


@pytest.mark.parametrize(
    ("known", "status"),
    [
        ("{tag}", 304),
        ('"other", W/{tag} , "third"', 304),
        ("*", 304),
        ("", 200),
        ("{bare}", 200),
        ("\xe9\xe9", 200),
    ],
)
def test_what_the_client_names_is_compared(service: ServiceProcess, known: str, status: int) -> None:
    http, path = service.http(), made(service)
    tag = http.get(path).headers["etag"]
    named = known.format(tag=tag, bare=tag.strip('"'))
    assert http.get(path, headers=[(b"if-none-match", named.encode("latin-1"))]).status_code == status


def test_a_deleted_response_is_not_there_for_those_who_had_it(service: ServiceProcess) -> None:
    http, path = service.http(), made(service)
    tag = http.get(path).headers["etag"]
    http.delete(path).raise_for_status()
    for known in (tag, "*"):
        refused = http.get(path, headers={"if-none-match": known})
        assert refused.status_code == 404
        assert "etag" not in refused.headers


def test_a_tag_opens_nothing_to_another_tenant(tenants: ServiceProcess) -> None:
    acme, globex = tenants.http(ACME_KEY), tenants.http(GLOBEX_KEY)
    id = acme.post("/v1/responses", json={"model": MODEL, "input": "Count to 3."}).json()["id"]
    tag = acme.get(f"/v1/responses/{id}").headers["etag"]
    for known in (tag, "*"):
        assert acme.get(f"/v1/responses/{id}", headers={"if-none-match": known}).status_code == 304
        for http, status in ((globex, 404), (tenants.http(), 401)):
            refused = http.get(f"/v1/responses/{id}", headers={"if-none-match": known})
            assert (refused.status_code, "etag" in refused.headers) == (status, False)


# --- pages of items over turns of any sizes ---


class Turns:
    """Turns in memory, of so many items in and out each; None was deleted. It notes what is read."""

    def __init__(self, turns: Sequence[tuple[int, int] | None], padding: int = 0) -> None:
        self.reads: list[int] = []
        self.ids = [f"resp_00{at:046x}" for at in range(len(turns))]
        self._padding = "x" * padding
        self._told = {id: self._turn(at, each) for at, (id, each) in enumerate(zip(self.ids, turns, strict=True))}

    async def items(
        self, tenant: str, ids: Sequence[str], *, remains: bool = False, most_bytes: int | None = None
    ) -> list[tuple[bytes, bytes]]:
        told, size = list[tuple[bytes, bytes]](), 0
        for id in ids:
            size += sum(map(len, self._told[id]))
            if told and most_bytes is not None and size > most_bytes:
                break
            told.append(self._told[id])
        if ids:
            self.reads.append(len(told))
        return told

    def _turn(self, at: int, counts: tuple[int, int] | None) -> tuple[bytes, bytes]:
        if counts is None:
            return NOTHING_LISTED
        given, made = (
            [self._item(at, n) for n in numbers] for numbers in (range(counts[0]), range(100, 100 + counts[1]))
        )
        return msgspec.json.encode({"output": made}), msgspec.json.encode(given)

    def _item(self, at: int, number: int) -> dict[str, str]:
        return {"id": f"msg_00{at:046x}{number:04x}", "padding": self._padding}


async def pages(turns: Turns, limit: int, *, ascending: bool) -> list[list[str]]:
    store, found, after = cast(ConversationHistoryStore, turns), list[list[str]](), None
    while True:
        page = await page_of(
            store,
            "t",
            turns.ids,
            OrderedQuery.model_construct(limit=limit, order="asc" if ascending else "desc", after=after),
        )
        found.append([msgspec.json.decode(item)["id"] for item in page.data])
        if not page.has_more:
            return found
        after = page.last_id


counts = some.one_of(some.none(), some.tuples(some.integers(0, 5), some.integers(0, 5)))


@given(
    turns=some.lists(counts, max_size=30),
    limit=some.integers(1, 12),
    ascending=some.booleans(),
    padding=some.sampled_from([0, 40_000]),
)
async def test_pages_list_each_item_once_in_its_order(
    turns: list[tuple[int, int] | None], limit: int, ascending: bool, padding: int
) -> None:
    stored = Turns(turns, padding)
    (whole,) = await pages(Turns(turns), 1000, ascending=True)
    found = await pages(stored, limit, ascending=ascending)
    assert list(chain(*found)) == (whole if ascending else whole[::-1])
    assert all(len(page) <= limit for page in found)
    assert max(stored.reads, default=0) <= TURNS_A_READ


def test_items_of_a_deleted_ancestor_are_no_longer_listed(service: ServiceProcess) -> None:
    client = service.client()
    turns: list[Response] = []
    for text in ("one", "two", "three"):
        after = turns[-1].id if turns else None
        turns.append(client.responses.create(model=MODEL, input=text, previous_response_id=after))
    before = listed(client, turns[2].id, order="asc")
    gone = listed(client, turns[1].id, order="asc")[-1:] + [item.id for item in turns[1].output]
    client.responses.delete(turns[1].id)
    assert listed(client, turns[2].id, order="asc") == [id for id in before if id not in gone] != before
