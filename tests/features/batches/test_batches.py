"""Batches as the official SDK has them made: an uploaded file of requests, and files of what came of each."""

import asyncio
import json
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import openai
import pytest
from openai.types import Batch
from redis.asyncio import Redis

from service.features.batches import running, shapes
from service.features.batches.feature import FEATURE
from service.features.batches.lines import BatchLine, LineReader, LineScanner
from service.features.batches.shapes import BATCHES
from service.process import Settings, load_settings
from service.settings.core import DEFAULT_TENANT
from store.errors import StoreUnavailable
from store.files.files import FileGone, Files
from store.history.history import ConversationHistoryStore
from store.history.records import TenantRecords
from store.jobs.jobs import Jobs
from store.jobs.outbox import Outbox
from store.redis.connection import connect
from tests.support.batches import ENDED, answers_of, begun, ended, lines
from tests.support.engine.scripted import Stall
from tests.support.service import background
from tests.support.service.background import changed, submitted
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.process import MODEL
from tests.support.waiting import until


async def test_each_line_is_answered_once_and_found_by_its_own_name(settings: Settings) -> None:
    asked = lines(*({"input": f"Say {number}."} for number in range(300)))
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        batch = await begun(client, asked, metadata={"night": "1"})
        assert (batch.status, batch.endpoint, batch.completion_window) == ("validating", "/v1/responses", "24h")
        batch = await ended(client, batch.id)
        assert (batch.status, batch.model, batch.metadata) == ("completed", MODEL, {"night": "1"})
        assert counts_of(batch) == (300, 300, 0)
        assert batch.usage is not None
        made = await answers_of(client, batch.output_file_id)
        used = [each["response"]["body"]["usage"] for each in made.values()]
        assert batch.usage.total_tokens == sum(each["total_tokens"] for each in used)
        assert batch.usage.output_tokens == sum(each["output_tokens"] for each in used) > 300
        assert sorted(made) == sorted(json.loads(line)["custom_id"] for line in asked)
        assert {text_of(each) for each in made.values()} == {"Hello."}
        assert batch.error_file_id is None
        purposes = [file.purpose async for file in client.files.list()]
        assert sorted(purposes) == ["batch", "batch_output"], "parts of an output are nobody's business"


async def test_a_response_stays_only_if_its_line_asks_for_that(settings: Settings) -> None:
    asked = lines({"input": "a", "store": True}, {"input": "b"}, {"input": "c", "store": False})
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        batch = await ended(client, (await begun(client, asked)).id)
        made = await answers_of(client, batch.output_file_id)
        kept, *others = (made[f"line-{number}"]["response"]["body"]["id"] for number in range(3))
        assert (await client.responses.retrieve(kept)).output_text == "Hello."
        for id in others:
            with pytest.raises(openai.NotFoundError):
                await client.responses.retrieve(id)


async def test_a_line_that_is_refused_is_among_the_errors_and_the_others_are_made(settings: Settings) -> None:
    asked = lines({"input": "a"}, {"input": "b", "temperature": 7}, {"model": "unknown", "input": "c"})
    asked += [line.replace("line-0", "talk") for line in lines({"input": "d", "conversation": "conv_x"})]
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        batch = await ended(client, (await begun(client, asked)).id)
        assert (batch.status, counts_of(batch)) == ("completed", (4, 1, 3))
        assert [*await answers_of(client, batch.output_file_id)] == ["line-0"]
        refused = await answers_of(client, batch.error_file_id)
        told = {
            name: (each["response"]["status_code"], each["response"]["body"]["error"]) for name, each in refused.items()
        }
        assert {name: (status, error["param"]) for name, (status, error) in told.items()} == {
            "line-1": (400, "temperature"),
            "line-2": (404, "model"),
            "talk": (400, "conversation"),
        }


async def test_the_client_reads_line_by_line_whatever_a_model_says(settings: Settings) -> None:
    said = "one\u2028two\u2029three\x85four\x0bfive\\"
    async with serving(settings, scripted([answer(said)])) as inside, inside.client() as client:
        batch = await ended(client, (await begun(client, lines({"input": "a"}))).id)
        assert batch.output_file_id is not None
        (line,) = (await client.files.content(batch.output_file_id)).iter_lines()
        assert text_of(json.loads(line)) == said


async def test_a_line_of_chat_completions_has_their_answer(settings: Settings) -> None:
    path = "/v1/chat/completions"
    asked = lines({"messages": [{"role": "user", "content": "Hi"}]}, {"messages": "Hi"}, url=path)
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        batch = await ended(client, (await begun(client, asked, endpoint=path)).id)
        made = await answers_of(client, batch.output_file_id)
        body = made["line-0"]["response"]["body"]
        assert (body["object"], body["choices"][0]["message"]["content"]) == ("chat.completion", "Hello.")
        refused = await answers_of(client, batch.error_file_id)
        assert refused["line-1"]["response"]["body"]["error"]["param"] == "messages"


@pytest.mark.parametrize(
    ("asked", "code", "line", "param"),
    [
        ([*lines({"input": "a"}), "{"], "invalid_line", 2, None),
        ([*lines({"input": "a"}), "", *lines({"input": "b"})], "duplicate_custom_id", 3, "custom_id"),
        (lines({"input": "a"}, url="/v1/embeddings"), "mismatched_url", 1, "url"),
        (lines({"input": "a", "stream": True}), "invalid_line", 1, "body.stream"),
        (['{"custom_id": "a", "method": "POST", "url": "/v1/responses"}'], "invalid_line", 1, "body"),
        ([" "], "empty_file", None, None),
    ],
)
async def test_a_file_with_a_wrong_line_makes_nothing_and_says_which(
    settings: Settings, asked: list[str], code: str, line: int | None, param: str | None
) -> None:
    engine = scripted([answer("Hello.")])
    async with serving(settings, engine) as inside, inside.client() as client:
        batch = await ended(client, (await begun(client, asked)).id)
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        [problem] = batch.errors.data
        assert (problem.code, problem.line, problem.param) == (code, line, param)
        assert engine.generations == []


async def test_a_line_that_is_too_deep_for_its_reader_alone_fails_its_batch_and_says_so(settings: Settings) -> None:
    scanner = LineScanner("/v1/responses", 1 << 20)

    def deep(levels: int) -> str:
        body = f'{{"input": {"[" * levels}{"]" * levels}}}'
        return f'{{"custom_id": "deep", "method": "POST", "url": "/v1/responses", "body": {body}}}'

    async def is_read(levels: int) -> bool:
        scanner.problems.clear()
        await asyncio.to_thread(scanner.feed, deep(levels).encode() + b"\n")
        return not [each for each in scanner.problems if "deeply" in each.message]

    levels = 1
    while await is_read(levels + 1):
        levels += 1
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        batch = await ended(client, (await begun(client, [*lines({"input": "a"}), deep(levels)])).id)
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert (batch.status, [each.code for each in batch.errors.data]) == ("failed", ["invalid_line"])


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-nowhere"}, "input_file_id"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 60}}, "output_expires_after.seconds"),
    ],
)
async def test_a_batch_that_can_t_be_is_refused_at_once(settings: Settings, wanted: Any, param: str) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await begun(client, lines({"input": "a"}), **wanted)
        assert refused.value.param == param
        assert [each async for each in client.batches.list()] == []


async def test_batches_are_listed_newest_first_page_by_page(settings: Settings) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        ids = [(await begun(client, lines({"input": "a"}))).id for _ in range(3)]
        assert {each.id async for each in client.batches.list(limit=2)} == set(ids)
        page = await client.batches.list(limit=2)
        assert (len(page.data), page.has_more) == (2, True)
        with pytest.raises(openai.BadRequestError):
            await client.batches.list(after="batch_nowhere")
        with pytest.raises(openai.NotFoundError):
            await client.batches.retrieve("batch_nowhere")


async def test_a_batch_of_a_later_release_is_left_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.05)
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        own = await begun(client, lines({"input": "a"}))
        await ended(client, own.id)
        stored = TenantRecords(inside.store, BATCHES)
        tenant, id = DEFAULT_TENANT, stored.new_id(DEFAULT_TENANT)
        record = await stored.get(tenant, own.id)
        assert record is not None
        known = msgspec.msgpack.decode(record)
        assert known["version"] == shapes.VERSION
        later = known | {"version": shapes.VERSION + 1, "shown": known["shown"] | {"id": id, "status": "paused"}}
        await stored.keep(tenant, id, msgspec.msgpack.encode(later), under_way=True)

        again = await begun(client, lines({"input": "b"}))
        assert (await ended(client, again.id)).status == "completed"
        assert {each.id async for each in client.batches.list()} == {own.id, again.id}
        for ask in (client.batches.retrieve, client.batches.cancel):
            with pytest.raises(openai.InternalServerError, match="A later release stored the requested data"):
                await ask(id)
        await asyncio.sleep(0.5)
        assert caplog.text.count("a batch needs a later release") == 1
        assert "work on a batch failed" not in caplog.text
        assert await stored.get(tenant, id) == msgspec.msgpack.encode(later)
        assert await FEATURE.under_way(cast(Any, inside)) == {"batches": []}


async def test_a_cancelled_batch_has_what_was_made_by_then(settings: Settings) -> None:
    made, stalls = [[answer("Hello.")]] * 3, [opened("Hm"), Stall()]
    engine = scripted(*made, stalls)
    asked = lines(*({"input": str(number)} for number in range(40)))
    async with serving(changed(settings, worker_concurrency=4), engine) as inside, inside.client() as client:
        batch = await begun(client, asked)
        await until(lambda: len(engine.generations) >= 7, 90)
        assert (await client.batches.cancel(batch.id)).status == "cancelling"
        batch = await ended(client, batch.id)
        assert (batch.status, counts_of(batch)) == ("cancelled", (40, 3, 0))
        assert len(await answers_of(client, batch.output_file_id)) == 3
        assert (await client.batches.cancel(batch.id)).status == "cancelled"
        assert len(engine.generations) == 7


SHORT_WINDOW_SECONDS = 10
"""Time for a batch of some hundred lines to begin and for its first answer, on a busy machine too."""


async def test_a_batch_that_is_over_says_of_each_line_that_it_came_too_late(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(shapes.WINDOWS, "2h", SHORT_WINDOW_SECONDS)
    engine = scripted([answer("Hello.")], [opened("Hm"), Stall()])
    asked = lines(*({"input": str(number)} for number in range(600)))
    async with serving(changed(settings, worker_concurrency=1), engine) as inside, inside.client() as client:
        batch = await ended(client, (await begun(client, asked, completion_window="2h")).id)
        assert (batch.status, counts_of(batch)) == ("expired", (600, 1, 599))
        late = await answers_of(client, batch.error_file_id)
        assert {each["error"]["code"] for each in late.values()} == {"batch_expired"}


@pytest.mark.parametrize("dies", ["append", "finish"])
async def test_an_expiry_goes_on_when_its_holder_dies_amid_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    monkeypatch.setitem(shapes.WINDOWS, "2h", SHORT_WINDOW_SECONDS)
    alive, deaths = getattr(Files, dies), list[str]()

    async def die_once(files: Files, tenant: str, *args: Any, **kwargs: Any) -> Any:
        if not deaths and (dies == "finish" or args[1] > 1 << 16):
            deaths.append(dies)
            raise StoreUnavailable("it is away")
        return await alive(files, tenant, *args, **kwargs)

    engine = scripted([answer("Hello.")], [opened("Hm"), Stall()])
    asked = lines(*({"input": str(number)} for number in range(700)))
    quick = changed(settings, worker_concurrency=1, lease_seconds=2.0)
    async with serving(quick, engine) as inside, inside.client() as client:
        file = await client.files.create(file=("asked.jsonl", "\n".join(asked).encode()), purpose="batch")
        monkeypatch.setattr(Files, dies, die_once)
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/responses", completion_window=cast(Any, "2h")
        )
        batch = await ended(client, batch.id)
        assert deaths == [dies]
        assert (batch.status, counts_of(batch)) == ("expired", (700, 1, 699))
        late = await answers_of(client, batch.error_file_id)
        assert {each["error"]["code"] for each in late.values()} == {"batch_expired"}
        assert (await answers_of(client, batch.output_file_id)).keys() == {"line-0"}


async def test_a_holder_that_died_when_a_clock_was_ahead_keeps_nobody_from_its_batch(settings: Settings) -> None:
    async with serving(changed(settings, embedded_worker=False)) as inside, inside.client() as client:
        batch = await begun(client, lines({"input": "a"}))
        before = await inside.store.now()

        def hold(record: bytes) -> tuple[bytes, bool]:
            ahead = msgspec.structs.replace(shapes.decode_batch(record), holder="dead", held_until=before + 86_400)
            return shapes.encode_batch(ahead)

        assert await TenantRecords(inside.store, BATCHES).change(DEFAULT_TENANT, batch.id, hold)
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        assert (await ended(client, batch.id)).status == "completed"


async def test_a_batch_whose_service_was_off_for_days_keeps_its_answers_and_expires(settings: Settings) -> None:
    engine = scripted(*[[answer("Hello.")]] * 3, [opened("Hm"), Stall()])
    asked = lines(*({"input": str(number)} for number in range(40)))
    async with serving(changed(settings, worker_concurrency=1), engine) as inside, inside.client() as client:
        batch = await begun(client, asked)
        await until(lambda: client.batches.retrieve(batch.id), 90, wanted=lambda found: counts_of(found)[1] >= 3)
    await let_days_pass(settings, batch.id, 3)
    async with serving(settings, scripted([opened("Hm"), Stall()])) as inside, inside.client() as client:
        batch = await ended(client, batch.id)
        assert (batch.status, counts_of(batch), batch.errors) == ("expired", (40, 3, 37), None)
        assert len(await answers_of(client, batch.output_file_id)) == 3
        late = await answers_of(client, batch.error_file_id)
        assert {each["error"]["code"] for each in late.values()} == {"batch_expired"}


async def let_days_pass(settings: Settings, id: str, days: int) -> None:
    """Have a batch, and the files of its answers, be as they are after so many days without a service."""
    store = ConversationHistoryStore(connect(settings.redis_url), prefix=settings.redis_prefix)
    seconds = days * 86_400

    def age(record: bytes) -> tuple[bytes, bool]:
        before = shapes.decode_batch(record)
        older = before.showing(expires_at=before.shown.expires_at - seconds)
        return shapes.encode_batch(msgspec.structs.replace(older, held_until=before.held_until - seconds))

    try:
        assert await TenantRecords(store, BATCHES).change(DEFAULT_TENANT, id, age)
        for shard in store.keyspace.all_shards():
            times = shard.key_named("files-until")
            for member in await store.server.command("ZRANGE", times, "(0", "+inf", "BYSCORE"):
                await store.server.command("ZINCRBY", times, -1000 * seconds, member)
    finally:
        await store.close()


async def test_lines_that_are_refused_or_late_keep_no_request_in_memory(settings: Settings) -> None:
    engine = scripted([opened("Hm"), Stall()])
    vast = [{"input": "a" * (1 << 20), "temperature": 7}] * 30
    asked = lines({"input": "a"}, *vast, {"input": "b"}, *[{"input": "a" * 1000}] * 520, *[{"input": "b" * 1000}] * 200)
    async with serving(changed(settings, worker_concurrency=2), engine) as inside, inside.client() as client:
        batch = await begun(client, asked)
        tracemalloc.start()
        try:
            await until(lambda: len(engine.generations) >= 2, 90)
            assert tracemalloc.get_traced_memory()[0] < 16 << 20
        finally:
            tracemalloc.stop()
        await client.batches.cancel(batch.id)
        assert counts_of(await ended(client, batch.id)) == (752, 0, 30)


async def test_lines_for_an_engine_that_is_away_come_last_whoever_goes_on(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    away = 'kind = "chat"\nurls = ["http://127.0.0.1:1"]\ncontext_tokens = 8000\n'
    path.write_text(f'[[engines]]\nname = "demo"\nkind = "demo"\n[[engines]]\nname = "away"\n{away}')
    asked = lines(*({"input": "Count to 1.", "model": ("away", "demo")[n % 2]} for n in range(300)))
    both = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, engines=str(path))
    async with serving(both) as inside, inside.client() as client:
        batch = await begun(client, asked)
        await until(lambda: client.batches.retrieve(batch.id), 90, wanted=lambda found: counts_of(found)[1] > 0)
    async with serving(both) as inside, inside.client() as client:
        await until(lambda: client.batches.retrieve(batch.id), 90, wanted=lambda found: counts_of(found)[1] == 150)
        await client.batches.cancel(batch.id)
        batch = await ended(client, batch.id)
        made = await answers_of(client, batch.output_file_id)
        assert made.keys() == {f"line-{n}" for n in range(1, 300, 2)}
        assert (counts_of(batch), batch.error_file_id) == ((300, 150, 0), None)


async def test_no_webhook_reports_a_line(settings: Settings) -> None:
    where = {"redis_url": settings.redis_url, "redis_prefix": settings.redis_prefix}
    told = load_settings(**where, webhook_url="private+http://127.0.0.1:1/", webhook_secret="whsec_" + 32 * "A")
    async with serving(told, scripted([answer("Hello.")])) as inside, inside.client() as client:
        plain = await background.ended(client, (await submitted(client)).id)
        assert (
            await ended(client, (await begun(client, lines({"input": "a"}, {"input": "b"}))).id)
        ).status == "completed"
        ask, outbox = inside.store.server.command, Outbox(inside.store)
        told_of = [each for shard in outbox.shards for each in await ask("ZRANGE", shard.key_named("outbox"), 0, -1)]
        assert [plain.id.removeprefix("resp_") in each.decode() for each in told_of] == [True]


async def test_its_lines_wait_until_no_other_response_does(settings: Settings) -> None:
    engine = scripted([answer("Hello.")])
    asked = lines(*({"input": str(number)} for number in range(60)))
    async with serving(changed(settings, worker_concurrency=1), engine) as inside, inside.client() as client:
        batch = await begun(client, asked)
        await until(lambda: len(engine.generations) >= 5, 90)
        before = len(engine.generations)
        plain = await submitted(client)
        await background.ended(client, plain.id)
        first = next(n for n, each in enumerate(engine.generations) if each.id == plain.id)
        assert first - before <= 5, "the lines that ran by then, and those begun before it was there"
        assert (await ended(client, batch.id)).status == "completed"


async def test_a_small_batch_takes_turns_with_another_tenant_s_large_one_and_ends_long_before(
    settings: Settings,
) -> None:
    small, large = 10, 200
    turns, rest = asyncio.Event(), asyncio.Event()
    engine = scripted(*[[Stall(turns), answer("Hello.")]] * (3 * small), [Stall(rest), answer("Hello.")])
    keys = load_settings(
        redis_url=settings.redis_url,
        redis_prefix=settings.redis_prefix,
        api_keys="ada:sk-ada,bob:sk-bob",
        worker_concurrency=2,
    )
    async with serving(keys, engine) as inside, inside.client("sk-ada") as ada, inside.client("sk-bob") as bob:
        jobs = Jobs(inside.store)
        waiting = partial(waiting_in, jobs)
        first = await begun(ada, lines(*({"input": f"Say {number}."} for number in range(large))))
        await until(waiting, 90, wanted=lambda number: number == large - 2)
        second = await begun(bob, lines(*({"input": f"Say {number}."} for number in range(small))))
        await until(waiting, 90, wanted=lambda number: number == large + small - 2)
        turns.set()
        batch = await until(lambda: bob.batches.retrieve(second.id), 90, wanted=lambda found: found.status in ENDED)
        assert (batch.status, counts_of(batch)) == ("completed", (small, small, 0))
        made = {each["response"]["body"]["id"] for each in (await answers_of(bob, batch.output_file_id)).values()}
        (*_, last) = [number for number, each in enumerate(engine.generations) if each.id in made]
        assert abs(last - 2 * small) <= 4, "each other line is of the large one"
        assert (await ada.batches.retrieve(first.id)).status == "in_progress"
        rest.set()
        batch = await ended(ada, first.id)
        assert (batch.status, counts_of(batch)) == ("completed", (large, large, 0))


async def waiting_in(jobs: Jobs) -> int:
    """How many jobs wait, of all tenants."""
    return sum([sum((await jobs.queue(shard)).waiting) for shard in range(jobs.shards)])


async def test_another_process_goes_on_where_one_was_stopped(settings: Settings) -> None:
    engine = scripted(*[[answer("Hello.")]] * 150, [opened("Hm"), Stall()])
    wrong = [{"input": "hi", "store": "no"}, *({"input": "a", "previous_response_id": id} for id in (5, "resp_x", ""))]
    asked = lines(*wrong, *({"input": str(number)} for number in range(200)))
    asked.append(asked[0].replace("line-0", "vast").replace('"no"', "1e999"))
    async with serving(settings, engine) as inside, inside.client() as client:
        batch = await begun(client, asked)
        await until(lambda: client.batches.retrieve(batch.id), 90, wanted=lambda found: counts_of(found)[1] >= 123)
    again = scripted([answer("Hello.")])
    async with serving(settings, again) as inside, inside.client() as client:
        batch = await ended(client, batch.id)
        assert (batch.status, counts_of(batch)) == ("completed", (205, 200, 5))
        assert len(await answers_of(client, batch.output_file_id)) == 200
        assert len(again.generations) <= 200 - 123


async def test_a_batch_whose_input_is_deleted_under_its_work_fails_at_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        read = LineReader.read

        async def read_two(reader: LineReader, place: int) -> BatchLine:
            if place == 2:
                file = (await client.files.list(purpose="batch")).data[0]
                await client.files.delete(file.id)
                raise FileGone(file.id)
            return await read(reader, place)

        monkeypatch.setattr(LineReader, "read", read_two)
        batch = await begun(client, lines(*({"input": str(number)} for number in range(4))))
        batch = await until(lambda: client.batches.retrieve(batch.id), 90, wanted=lambda found: found.status in ENDED)
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert (batch.status, [each.code for each in batch.errors.data]) == ("failed", ["file_gone"])


async def test_a_batch_whose_input_was_deleted_keeps_its_answers_so_far_and_no_responses(settings: Settings) -> None:
    engine = scripted(*[[answer("Hello.")]] * 3, [opened("Hm"), Stall()])
    asked = lines({"input": "a", "temperature": 7}, *({"input": str(number)} for number in range(40)))
    async with serving(changed(settings, worker_concurrency=1), engine) as inside, inside.client() as client:
        batch = await begun(client, asked)
        await until(lambda: client.batches.retrieve(batch.id), 90, wanted=lambda found: counts_of(found)[1] >= 3)
    async with serving(settings, scripted([answer("Hello.")])) as inside, inside.client() as client:
        await client.files.delete(batch.input_file_id)
        batch = await ended(client, batch.id)
        assert batch.errors is not None
        assert batch.errors.data is not None
        assert (batch.status, [each.code for each in batch.errors.data]) == ("failed", ["file_gone"])
        assert len(await answers_of(client, batch.output_file_id)) == counts_of(batch)[1] == 3
        assert (await answers_of(client, batch.error_file_id)).keys() == {"line-0"}

        async def left() -> int:
            async with Redis.from_url(settings.redis_url) as redis:
                return len([key async for key in redis.scan_iter(f"{settings.redis_prefix}:*:node:*")])

        await until(left, wanted=lambda number: number == 0)


async def test_another_tenant_s_batch_is_not_there(settings: Settings) -> None:
    keys = load_settings(
        redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, api_keys="ada:sk-ada,bob:sk-bob"
    )
    async with serving(keys, scripted([answer("Hello.")])) as inside:
        ada, bob = inside.client("sk-ada"), inside.client("sk-bob")
        batch = await ended(ada, (await begun(ada, lines({"input": "a"}))).id)
        told = list[str]()
        for id in (batch.id, "batch_" + "0" * 48):
            with pytest.raises(openai.NotFoundError) as refused:
                await bob.batches.retrieve(id)
            with pytest.raises(openai.NotFoundError):
                await bob.batches.cancel(id)
            told.append(refused.value.message.replace(id, "ID"))
        assert told[0] == told[1]
        assert [each async for each in bob.batches.list()] == []
        with pytest.raises(openai.BadRequestError):
            await bob.batches.create(
                input_file_id=batch.input_file_id, endpoint="/v1/responses", completion_window="24h"
            )
        await ada.close()
        await bob.close()


def counts_of(batch: Batch) -> tuple[int, int, int]:
    counts = batch.request_counts
    assert counts is not None
    return counts.total, counts.completed, counts.failed


def text_of(line: Any) -> str:
    return line["response"]["body"]["output"][0]["content"][0]["text"]
