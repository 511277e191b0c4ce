"""What is kept, for how long, and what it looks like from outside when it isn't any more."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from httpx import Response as HttpResponse
from openai import OpenAI
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from service.process import Settings
from store.embedded import EmbeddedServer
from store.guard import CLOSED
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL
from tests.support.service.scraped import Scraped
from tests.support.service.streams import parsed
from tests.support.waiting import until, wait_until

Start = Callable[..., Any]
"""Starts a service in a process of its own, or in this one."""

UNKNOWN = "resp_" + "00" * 24


def created(client: OpenAI, text: str, after: str | None = None) -> str:
    """The id of a new response."""
    return client.responses.create(model=MODEL, input=text, previous_response_id=after or openai.omit).id


def known(client: OpenAI, ids: list[str]) -> list[str]:
    """Those of `ids` that can be listed, which is no use of them."""
    found: list[str] = []
    for id in ids:
        try:
            client.responses.input_items.list(id)
        except openai.NotFoundError:
            continue
        found.append(id)
    return found


def without(id: str, answer: HttpResponse) -> tuple[int, dict[str, object]]:
    """Status and error of an answer, the id that it names taken out."""
    return answer.status_code, json.loads(answer.text.replace(id, "ID"))


def test_the_least_recently_used_response_goes_for_a_new_one(beside: Start) -> None:
    client = beside(max_responses=3).client()
    ids = [created(client, text) for text in ("one", "two", "three")]
    client.responses.retrieve(ids[0])
    ids.append(created(client, "four"))
    assert known(client, ids) == [ids[0], ids[2], ids[3]]


def test_a_tenant_that_stores_much_has_nothing_of_another_one_evicted(beside: Start) -> None:
    service = beside(max_responses=10, api_keys="acme:key-a,rival:key-b")
    acme, rival = service.client("key-a"), service.client("key-b")
    mine = [created(acme, text) for text in ("one", "two", "three")]
    theirs = [created(rival, str(number)) for number in range(15)]
    assert known(acme, mine) == mine
    assert known(rival, theirs) == theirs[-7:]


def test_an_evicted_a_deleted_a_foreign_and_an_unknown_id_look_the_same(beside: Start) -> None:
    service = beside(max_responses=1, api_keys="acme:key-a,rival:key-b")
    acme, rival = service.client("key-a"), service.client("key-b")
    evicted, deleted = created(acme, "one"), created(acme, "two")
    acme.responses.delete(deleted)
    foreign = created(rival, "three")
    http = service.http("key-a")
    reads, creates = set[str](), set[str]()
    for id in (evicted, deleted, foreign, UNKNOWN):
        body = {"model": MODEL, "input": "hi", "previous_response_id": id}
        reads.add(str(without(id, http.get(f"/v1/responses/{id}"))))
        creates.add(str(without(id, http.post("/v1/responses", json=body))))
    assert len(reads) == len(creates) == 1
    assert "404" in reads.pop()
    assert "'previous_response_not_found'" in creates.pop()


def test_a_store_whose_every_response_is_needed_is_full_and_says_for_how_long(beside: Start, redis_url: str) -> None:
    service = beside(max_responses=2, demo_tokens_per_second=50)
    client, http = service.client(), service.http()
    first, second = created(client, "one"), created(client, "two")
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(created, client, "Count to 120.", first)
        wait_until(lambda: pinned(redis_url, first))
        plain = http.post("/v1/responses", json={"model": MODEL, "input": "hi", "previous_response_id": second})
        stream = http.post("/v1/responses", json={**json.loads(plain.request.content), "stream": True})
        third = slow.result()
    assert (plain.status_code, plain.json()["error"]["code"]) == (503, "store_full")
    assert (plain.headers["retry-after"], plain.headers["x-should-retry"]) == ("1", "true")
    failed = parsed(stream.text)[-1]
    assert failed["type"] == "response.failed"
    assert failed["response"]["output"]
    assert known(client, [first, second, third, str(failed["response"]["id"])]) == [first, third]


def test_a_service_whose_disk_is_nearly_full_stores_nothing_and_says_why(start: Start) -> None:
    service = start()
    client, http = service.client(), service.http()
    kept, deleted = created(client, "one"), created(client, "two")
    with service.redis() as redis:
        redis.config_set("maxmemory", CLOSED)  # as the guard of the disk does
        refused = http.post("/v1/responses", json={"model": MODEL, "input": "hi"})
        queued = http.post("/v1/responses", json={"model": MODEL, "input": "hi", "background": True})
        sampled = Scraped(http.get("/metrics").text).value("harmonium_output_tokens_total")
        known_by_now = http.post("/v1/responses", json={"model": MODEL, "input": "hi"})
        assert Scraped(http.get("/metrics").text).value("harmonium_output_tokens_total") == sampled
        client.responses.delete(deleted)
        assert known(client, [kept, deleted]) == [kept]
        redis.config_set("maxmemory", 0)
    for refusal in (refused, queued, known_by_now):
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (507, "disk_full")
        assert refusal.headers["x-should-retry"] == "false"
    assert known(client, [created(client, "three"), kept])


def test_a_server_without_memory_is_said_to_be_the_reason(start: Start, tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "redis") as server, SyncRedis.from_url(server.url) as redis:
        service = start(redis_url=server.url)
        redis.config_set("maxmemory", "100kb")
        refused = service.http().post("/v1/responses", json={"model": MODEL, "input": "hi"})
        redis.config_set("maxmemory", 0)
        assert created(service.client(), "hi")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "store_full")
    assert "no memory left" in refused.json()["error"]["message"]


def pinned(redis_url: str, id: str) -> bool:
    """Whether a run is at work on a continuation."""
    with SyncRedis.from_url(redis_url) as redis:
        return any(redis.scan_iter(f"*:pins:{id.removeprefix('resp_')}", count=1000))


def test_a_conversation_that_alone_takes_up_a_cap_is_refused_in_words(beside: Start) -> None:
    client = beside(max_responses=1).client()
    id = created(client, "hi")
    with pytest.raises(openai.BadRequestError, match="too long") as refused:
        created(client, "again", after=id)
    assert refused.value.code == "conversation_too_long"
    assert client.responses.retrieve(id).id == id


async def test_a_conversation_that_nobody_uses_is_deleted(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.background.tasks.SWEEP_SECONDS", 0.1)
    aged = settings.model_copy(update={"idle_days": 1})
    engine = scripted([answer("Hello.")], [answer("Hello.")])
    async with serving(aged, engine) as inside, inside.client() as client, Redis.from_url(aged.redis_url) as redis:
        made = [await client.responses.create(model=MODEL, input=text) for text in ("used long ago", "used now")]
        old, new = [each.id.removeprefix("resp_") for each in made]
        now = round(time.time() * 1e6)
        two_days_ago = now - 2 * 86_400_000_000
        shard = f"{aged.redis_prefix}:{{00}}"
        await redis.hset(f"{shard}:sweeps", mapping={"last": now, "began": two_days_ago})
        await redis.zadd(f"{shard}:trees", {f"default/{old}": two_days_ago})

        async def left() -> list[bool]:
            keys = [key async for key in redis.scan_iter(f"{shard}:*")]
            return [any(id.encode() in key for key in keys) for id in (old, new)]

        await until(left, wanted=lambda found: found == [False, True])
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(made[0].id)
        assert (await client.responses.retrieve(made[1].id)).id == made[1].id


def test_a_response_is_erased_and_its_descendants_go_on_without_it(beside: Start) -> None:
    service = beside()
    client, http = service.client(), service.http()
    first = created(client, "My name is Ada.")
    second = created(client, "What did I tell you?", after=first)
    third = client.responses.create(model=MODEL, input="What is my name?", previous_response_id=second)
    assert "Ada" in third.output_text
    assert http.delete(f"/v1/responses/{first}?erase=true").json()["deleted"] is True
    http.delete(f"/v1/responses/{second}?erase=true")
    fourth = client.responses.create(model=MODEL, input="And now?", previous_response_id=third.id)
    before, after = third.usage, fourth.usage
    assert before
    assert after
    assert after.input_tokens < before.input_tokens
    assert known(client, [first, second, third.id]) == [third.id]


def test_a_whole_conversation_is_deleted_with_all_its_forks(beside: Start) -> None:
    service = beside()
    client = service.client()
    root = created(client, "one")
    ids = [root, created(client, "two", after=root), created(client, "fork", after=root), created(client, "other")]
    answer = service.http().delete(f"/v1/responses/{ids[1]}?tree=true")
    assert answer.json() == {"id": ids[1], "object": "response.deleted", "deleted": True}
    assert known(client, ids) == ids[-1:]
    assert service.http().delete(f"/v1/responses/{root}?tree=true").status_code == 404
