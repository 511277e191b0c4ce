"""Conversations that have left memory, over HTTP: they are read, continued and deleted as any others, and an archive
that is away is no reason to say that something isn't there.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from httpx import AsyncClient, Response
from openai import APIStatusError, AsyncOpenAI
from redis.asyncio import Redis

from service.commands.serve import join
from service.features.archive.opening import open_archive
from service.process import Settings
from store.archive import archive as archives
from store.archive.archive import FORMAT, FORMAT_KEY, Archive
from store.archive.port import Bounds
from store.archive.sqlite import SqliteBackend
from store.backup import ownership
from store.backup.archiving.marks import Marks
from store.backup.heads import key_of
from store.backup.upkeep.expiring import LOOKED_KEY
from store.errors import ArchiveUnavailable, Unsupported
from store.keys import ARCHIVE
from tests.support.service.inside import Inside, serving
from tests.support.service.process import MODEL, free_port
from tests.support.waiting import until

KEYS = (("ada", "key-of-ada"), ("bob", "key-of-bob"))
ADA = {"authorization": f"Bearer {KEYS[0][1]}"}
FEW = 8
"""How many responses memory has room for."""


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def settings(redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr("service.background.tasks.SWEEP_SECONDS", 1)
    return Settings.model_validate(
        {
            "redis_url": redis_url,
            "redis_prefix": prefix,
            "api_keys": KEYS,
            "data_dir": tmp_path,
            "archive_url": "sqlite",
            "archive_after_seconds": 0,
            "max_responses": FEW,
            "max_trees": 0,
            "embedded_worker": True,
            "store_timeout_seconds": 10.0,
            "lease_seconds": 30.0,
        }
    )


class Stored:
    """What a client knows of the service, and what is in memory."""

    def __init__(self, inside: Inside, redis: Redis, prefix: str) -> None:
        self.inside, self.redis, self.prefix = inside, redis, prefix
        self.ada, self.bob = (inside.client(key) for _, key in KEYS)

    async def all_archived(self) -> None:
        await until(lambda: self._waits(0))

    async def _waits(self, count: int) -> bool:
        return await self.redis.zcard(f"{self.prefix}:{{00}}:unarchived") == count

    async def in_memory(self, id: str, tenant: str = "ada") -> bool:
        return bool(await self.redis.exists(f"{self.prefix}:{{00}}:t:{tenant}:node:{id.partition('_')[2]}"))

    async def push_out(self, id: str, client: AsyncOpenAI | None = None) -> None:
        """Have a turn of Ada's leave memory."""
        while await self.in_memory(id):
            await say(client or self.ada, "Count to 3.")
            await self.all_archived()


async def say(client: AsyncOpenAI, text: str, after: str | None = None) -> str:
    return (await client.responses.create(model=MODEL, input=text, previous_response_id=after)).id


@pytest.fixture
async def stored(settings: Settings, redis: Redis, prefix: str) -> AsyncIterator[Stored]:
    await asyncio.to_thread(join, settings)  # as `serve` does
    async with serving(settings) as inside:
        stored = Stored(inside, redis, prefix)
        async with stored.ada, stored.bob:
            yield stored


@pytest.fixture
async def away(stored: Stored) -> tuple[str, str]:
    """Two turns of a conversation that have left memory."""
    first = await say(stored.ada, "My name is Ada.")
    second = await say(stored.ada, "Count to 2.", first)
    await stored.push_out(first)
    assert not await stored.in_memory(second)
    return first, second


async def test_the_archive_lists_what_left_memory_with_what_is_known_of_it_and_nothing_deleted_or_anothers(
    stored: Stored, away: tuple[str, str]
) -> None:
    async def listed(as_whom: dict[str, str] = ADA) -> dict[str, Any]:
        async with stored.inside.http() as http:
            page = (await http.get("/console/api/trees", headers=as_whom)).json()
        return {tree["id"]: tree for tree in page["data"]}

    first, second = away
    trees = await listed()
    for id, tree in trees.items():
        assert tree["in_memory"] == await stored.in_memory(id)
    known = trees.pop(first)
    assert (known["in_memory"], known["title"], known["turns"]) == (False, "My name is Ada.", 2)
    newest = known["newest"]
    assert (newest["id"], newest["input"], newest["output"]) == (second, "Count to 2.", "1 2")
    assert await listed({"authorization": f"Bearer {KEYS[1][1]}"}) == {}
    async with stored.inside.http() as http:
        turn = (await http.get(f"/console/api/turns/{second}", headers=ADA)).json()
        assert newest["created_at"] == turn["created_at"]
        await http.delete(f"/v1/responses/{first}", params={"tree": "true"}, headers=ADA)
    assert set(await listed()) == set(trees)


async def test_what_left_memory_is_read_where_it_is_and_continued_with_all_that_was_said_by_its_tenant_alone(
    stored: Stored, away: tuple[str, str]
) -> None:
    first, second = away
    found = await stored.ada.responses.retrieve(second)
    assert (found.output_text, found.previous_response_id) == ("1\n2", first)
    items = [item async for item in stored.ada.responses.input_items.list(second, order="asc", limit=1)]
    assert [item.type for item in items] == ["message", "reasoning", "message", "message"]
    assert "My name is Ada." in items[0].to_json()
    for attempt in (stored.bob.responses.retrieve(first), say(stored.bob, "Go on.", second)):
        with pytest.raises(APIStatusError) as refused:
            await attempt
        assert refused.value.status_code in (400, 404)
        assert refused.value.code in (None, "previous_response_not_found")
    assert not await stored.in_memory(first)
    assert not await stored.in_memory(second)
    answer = await stored.ada.responses.create(model=MODEL, input="What is my name?", previous_response_id=second)
    assert answer.output_text == "Your name is Ada."
    assert await stored.in_memory(first)
    assert await stored.in_memory(second)


async def test_what_is_deleted_after_it_left_stays_deleted(
    stored: Stored, away: tuple[str, str], redis: Redis, prefix: str, settings: Settings
) -> None:
    await stored.ada.responses.delete(away[0])
    await gone(stored.ada, away[0])
    assert (await stored.ada.responses.retrieve(away[1])).output_text == "1\n2"
    await stored.all_archived()
    await forget_all(redis, prefix)
    async with serving(settings) as again, again.client(KEYS[0][1]) as ada:
        await gone(ada, away[0])
        answer = await ada.responses.create(model=MODEL, input="What is my name?", previous_response_id=away[1])
        assert answer.output_text == "Your name is Ada."


async def test_an_import_brings_nothing_back_that_was_deleted_or_erased(
    stored: Stored, away: tuple[str, str], settings: Settings
) -> None:
    kept = await say(stored.ada, "Count to 4.")
    async with stored.inside.http() as http:
        first, second, here = [(await http.get(f"/console/api/turns/{id}", headers=ADA)).json() for id in (*away, kept)]
        assert (await http.delete(f"/v1/responses/{away[1]}?tree=true", headers=ADA)).status_code == 200

        async def imported(turn: dict[str, Any], by: AsyncClient = http) -> Response:
            sent = {"turn": turn["turn"], "seal": turn["seal"]}
            return await by.post("/console/api/turns", json=sent, headers=ADA)

        await stored.all_archived()
        for turn in (first, second):
            told = (await imported(turn)).json()
            assert (told["id"], told["new"], told["deleted"]) == (turn["id"], False, True)
        await gone(stored.ada, away[0])
        nowhere = settings.model_copy(update={"archive_url": f"postgresql://nobody@127.0.0.1:{free_port()}/none"})
        async with serving(nowhere) as blind, blind.http() as other:
            answer = await imported(first, other)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "archive_unavailable")
            assert not await stored.in_memory(away[0])
        await stored.push_out(kept)
        archive = open_archive(settings)
        assert archive is not None
        await Marks(archive).erase("ada", 1_000_000 * (1 + here["created_at"]))
        await archive.close()
        answer = await imported(here)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
        assert "Import only later turns." in answer.text


async def test_a_conversation_by_its_id_comes_back(stored: Stored) -> None:
    ada = stored.ada
    made = await ada.conversations.create(metadata={"topic": "names"})
    first = await ada.responses.create(model=MODEL, input="My name is Ada.", conversation=made.id)
    await stored.push_out(first.id)
    assert not await stored.in_memory(made.id)
    assert (await ada.conversations.retrieve(made.id)).metadata == {"topic": "names"}
    items = [item async for item in ada.conversations.items.list(made.id, order="asc")]
    assert "My name is Ada." in items[0].to_json()
    answer = await ada.responses.create(model=MODEL, input="What is my name?", conversation=made.id)
    assert answer.output_text == "Your name is Ada."
    await stored.push_out(answer.id)
    await ada.conversations.update(made.id, metadata={"topic": "more"})
    await stored.push_out(answer.id)
    assert (await ada.conversations.retrieve(made.id)).metadata == {"topic": "more"}
    await ada.conversations.delete(made.id)
    with pytest.raises(APIStatusError) as refused:
        await ada.conversations.retrieve(made.id)
    assert refused.value.status_code == 404


async def test_an_archive_that_is_away_is_no_reason_to_say_that_nothing_is_there(
    stored: Stored, away: tuple[str, str], settings: Settings
) -> None:
    nowhere = settings.model_copy(update={"archive_url": f"postgresql://nobody@127.0.0.1:{free_port()}/none"})
    async with serving(nowhere) as blind, blind.client(KEYS[0][1]) as ada:
        for attempt in (ada.responses.retrieve(away[1]), say(ada, "Go on.", away[1]), ada.responses.delete(away[1])):
            with pytest.raises(APIStatusError) as refused:
                await attempt
            assert (refused.value.status_code, refused.value.code) == (503, "archive_unavailable")
            assert "retry-after" in refused.value.response.headers
        assert await say(ada, "Count to 2.")
    await stored.ada.responses.retrieve(away[1])


async def test_ready_says_how_much_waits_for_the_archive_and_for_how_long(settings: Settings) -> None:
    kept = settings.model_copy(update={"archive_after_seconds": 3600.0})
    async with serving(kept) as service, service.client(KEYS[0][1]) as ada, service.http() as http:
        idle = {"waiting": 0, "oldest_seconds": 0.0, "usable": True}
        await until(lambda: _ready(http), wanted=lambda said: said["archive"] == idle)
        for _ in range(2):
            await say(ada, "Count to 2.")
        two = await until(lambda: _ready(http), wanted=lambda said: said["archive"]["waiting"] == 2)
        assert two["status"] == "ok"
        await until(lambda: _ready(http), wanted=lambda said: said["archive"]["oldest_seconds"] > 0)


async def test_a_service_is_not_ready_with_an_older_copy_of_its_archive_and_says_503_until_it_is_accepted(
    stored: Stored, away: tuple[str, str], settings: Settings
) -> None:
    archive = open_archive(settings)
    assert archive is not None
    head = await archive.get(key_of(0))
    await say(stored.ada, "Count to 3.")
    await stored.all_archived()
    now = await archive.get(key_of(0))
    assert head is not None
    assert now is not None
    assert await archive.put(key_of(0), head.value, only_if=now.etag) is not None
    await say(stored.ada, "Count to 4.")  # so the head is raised; else it is noticed within BEAT_SECONDS
    async with stored.inside.http() as http:
        said = await until(lambda: _ready(http), wanted=lambda said: said["status"] == "unavailable")
        assert (said["archive"]["usable"], said["store"]) == (False, "ok")
        answer = await http.get(f"/v1/responses/{away[1]}", headers=ADA)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "archive_unavailable")
        with pytest.raises(Unsupported, match="names an older copy of this store's archive"):
            await asyncio.to_thread(join, settings)
        assert len(await ownership.accept(stored.inside.store.server, stored.inside.store.keyspace, archive)) == 1
        await until(lambda: _ready(http), wanted=lambda said: said["status"] == "ok")
        assert (await http.get(f"/v1/responses/{away[1]}", headers=ADA)).status_code == 200
    await archive.close()


async def _ready(http: AsyncClient) -> dict[str, Any]:
    return (await http.get("/ready")).json()


@pytest.mark.parametrize("evicts", [False, True])
async def test_memory_that_is_full_of_what_the_archive_lacks_loses_nothing_unless_the_settings_let_it(
    settings: Settings, redis: Redis, prefix: str, evicts: bool
) -> None:
    url = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    changes = {"archive_url": url} | ({"archive_when_down": "evict"} if evicts else {})
    await redis.set(f"{prefix}:{{00}}:secret", bytes(32))
    async with serving(settings.model_copy(update=changes)) as blind, blind.client(KEYS[0][1]) as ada:
        shard = f"{prefix}:{{00}}:"
        await until(lambda: redis.exists(f"{shard}archive-away") if evicts else redis.hexists(f"{shard}usage", ARCHIVE))
        said = [await say(ada, "Count to 2.") for _ in range(2 * FEW if evicts else FEW)]
        if evicts:
            return
        with pytest.raises(APIStatusError) as refused:
            await say(ada, "One more.")
        assert (refused.value.status_code, refused.value.code) == (503, "archive_unavailable")
        for id in said:
            await ada.responses.retrieve(id)


@pytest.mark.parametrize("how", ["", "?erase=true", "?tree=true"])
async def test_a_memory_that_is_full_of_what_the_archive_lacks_deletes_what_has_left_it(
    stored: Stored, away: tuple[str, str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise ArchiveUnavailable("its disk is full")

    ada = stored.ada
    made = await ada.conversations.create()
    first = await ada.responses.create(model=MODEL, input="Count to 2.", conversation=made.id)
    await stored.push_out(first.id)
    with monkeypatch.context() as patched:
        patched.setattr(Archive, "put", refuse)
        await until(lambda: _is_full(ada), 30)
        async with stored.inside.http() as http:
            for path in (f"responses/{away[0]}{how}", f"conversations/{made.id}"):
                assert (await http.delete(f"/v1/{path}", headers=ADA)).status_code == 200
                assert (await http.delete(f"/v1/{path}", headers=ADA)).status_code == 404
        await gone(ada, away[0])
        assert await _is_gone(ada, away[1]) == (how == "?tree=true")
        assert not await stored.in_memory(away[0])
        assert await _is_full(ada)
    await stored.all_archived()
    assert await _is_gone(ada, away[1]) == (how == "?tree=true")
    assert (await ada.responses.retrieve(first.id)).output_text == "1\n2"


async def _is_full(client: AsyncOpenAI) -> bool:
    try:
        await say(client, "Count to 3.")
    except APIStatusError as error:
        return error.status_code in (503, 507)
    return False


async def test_who_names_the_archive_of_another_store_does_not_start(
    stored: Stored, away: tuple[str, str], settings: Settings
) -> None:
    another = settings.model_copy(update={"redis_prefix": f"test-{uuid.uuid4().hex}"})
    with pytest.raises(Unsupported, match="names an archive that another Redis uses at the moment"):
        await asyncio.to_thread(join, another)  # which is empty, and would tell for ever what the first one deletes
    third = settings.model_copy(update={"redis_prefix": f"test-{uuid.uuid4().hex}", "archive_url": "none"})
    await asyncio.to_thread(join, third)
    async with serving(third) as apart, apart.client(KEYS[0][1]) as ada:
        await say(ada, "Count to 2.")
    with pytest.raises(Unsupported, match="names the archive of another store"):
        await asyncio.to_thread(join, third.model_copy(update={"archive_url": "sqlite", "change_limits": True}))


async def test_an_archive_of_a_later_release_is_not_adopted_by_an_empty_redis(settings: Settings) -> None:
    await asyncio.to_thread(join, settings)
    archive = open_archive(settings)
    assert archive is not None
    kept = await archive.get(FORMAT_KEY)
    assert kept is not None
    assert kept.value == str(FORMAT).encode()
    await archive.put(FORMAT_KEY, str(FORMAT + 1).encode(), only_if=kept.etag)
    there = await archive.list("")
    empty = settings.model_copy(update={"redis_prefix": f"test-{uuid.uuid4().hex}"})
    with pytest.raises(Unsupported, match=r"names a newer archive: .* upgrade it \(docs/upgrading.md\)"):
        await asyncio.to_thread(join, empty)
    assert await archive.list("") == there
    await archive.close()


async def test_an_archive_that_a_later_release_takes_over_is_left_alone_and_no_404(
    settings: Settings, redis: Redis, prefix: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(archives, "FORMAT_SECONDS", 0.0)
    await asyncio.to_thread(join, settings)
    raw = SqliteBackend(settings.data_dir / "archive", Bounds())
    async with serving(settings) as inside:
        stored = Stored(inside, redis, prefix)
        async with stored.ada, stored.bob:
            first = await say(stored.ada, "My name is Ada.")
            await stored.push_out(first)
            kept = await raw.get(FORMAT_KEY)
            assert kept is not None
            await raw.put(FORMAT_KEY, str(FORMAT + 1).encode(), kept.etag)
            before = await raw.list("", "", 1000)
            caplog.clear()
            with pytest.raises(APIStatusError, match="A later release stored the requested data"):
                await stored.ada.responses.retrieve(first)
            await say(stored.ada, "Count to 2.")
            await until(lambda: "archiving fails" in caplog.text)
    assert caplog.text.count("archiving fails") == 1
    assert await raw.list("", "", 1000) == before
    await raw.close()


async def gone(client: AsyncOpenAI, id: str) -> None:
    with pytest.raises(APIStatusError) as refused:
        await client.responses.retrieve(id)
    assert refused.value.status_code == 404, json.dumps(refused.value.body)


async def _is_gone(client: AsyncOpenAI, id: str) -> bool:
    try:
        await client.responses.retrieve(id)
    except APIStatusError as error:
        return error.status_code == 404
    return False


async def forget_all(redis: Redis, prefix: str) -> None:
    keys = [key async for key in redis.scan_iter(f"{prefix}:*")]
    await redis.delete(*keys)


async def test_what_is_too_old_goes_from_the_archive_and_what_is_in_memory_stays(
    stored: Stored, away: tuple[str, str], settings: Settings
) -> None:
    kept = await say(stored.ada, "Count to 2.")
    await stored.all_archived()
    archive = open_archive(settings)
    assert archive is not None
    await until(lambda: archive.get(LOOKED_KEY))  # the service that keeps all for ever has had its look today
    await archive.delete(LOOKED_KEY)
    async with serving(settings.model_copy(update={"archive_days": 0.001 / 86_400})):
        await until(lambda: _is_gone(stored.ada, away[0]), 30)
    await stored.ada.responses.retrieve(kept)
    assert await archive.get(LOOKED_KEY)
    await archive.close()
