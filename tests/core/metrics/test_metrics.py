"""What is counted and how it is told: names, labels, buckets, the document, places of processes, and the shards."""

import asyncio
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import Gauge, generate_latest

from service.engine.engines import Engines
from service.errors import ApiError
from service.metrics import scrape
from service.metrics.counters import LOOK_SECONDS, declarations, lag_counted, make_metrics
from service.metrics.scrape import MAX_SCRAPES, Exposition, limits_of
from service.process import load_settings
from store.jobs.model import QueueFigures
from tests.support.documents import metrics_rows, read, with_metrics
from tests.support.service.scraped import Scraped
from tests.support.waiting import until

STATES = {
    0: QueueFigures((0, 0, 3, 1, 7, 8), 12.5, 2, 4096, 5, 70, 7, 8192),
    1: QueueFigures((0,) * 6, 0.0, 0, 0, 0, 9, 3, 1024),
}
SERVERS = {"10.0.0.5:8000": True, "10.0.0.6:8000": False}


async def shards() -> Mapping[int, QueueFigures]:
    return STATES


def exposition(read_shards: scrape.ReadShards, **options: float) -> Exposition:
    limits = limits_of(
        load_settings(max_bytes="1GiB", max_responses=0, max_trees=9, workers=2, max_concurrent_requests=7)
    )
    engines = SimpleNamespace(servers=lambda: SERVERS, loads=dict, waiting=0)
    return Exposition(make_metrics(), read_shards, cast(Engines, engines), limits, **options)


async def told(read_shards: Callable[[], object] = shards, accept: str = "", **options: float) -> str:
    text, _ = await exposition(cast(scrape.ReadShards, read_shards), **options).scrape(accept)
    return text.decode()


def test_the_document_says_what_the_code_does() -> None:
    text = read("docs/metrics.md")
    assert all(row in text for row in metrics_rows()), "run: python -m tests.support.documents"
    assert with_metrics(text) == text, "run: python -m tests.support.documents"


def test_a_lag_of_several_processes_is_the_greatest_and_a_number_of_things_the_sum() -> None:
    made = make_metrics()
    modes = {name: getattr(made, name)._multiprocess_mode for name, kind, _ in declarations() if kind is Gauge}
    assert {name for name, mode in modes.items() if mode == "livemax"} == {"archive_lag_seconds"}
    assert {name for name in modes if "seconds" in name} == {"archive_lag_seconds"}
    assert set(modes.values()) == {"livemax", "livesum"}


def test_a_new_metric_gets_its_row_in_the_table_of_its_neighbours_and_a_changed_one_its_own() -> None:
    text = read("docs/metrics.md")
    lines = text.splitlines(keepends=True)
    without = [line for line in lines if not line.startswith("| `harmonium_job_cancel_duration_seconds`")]
    assert with_metrics("".join(without)) == text
    changed = text.replace("Open WebSockets.", "Something else.")
    assert changed != text
    assert with_metrics(changed) == text


async def test_what_may_happen_is_there_at_0_before_it_does() -> None:
    found = Scraped(await told())
    assert found.value("harmonium_tool_calls_total", outcome="failed") == 0
    assert found.value("harmonium_webhook_attempts_total", outcome="given_up") == 0
    assert found.value("harmonium_leases_lost_total") == 0
    assert [name for name in found.names() if name.endswith("_created")] == []


def test_a_new_model_comes_with_all_series_that_may_be_of_it() -> None:
    metrics = make_metrics()
    name, model = "harmonium_responses_total", {"model": "gpt-oss-20b"}
    assert Scraped(generate_latest(metrics.registry).decode()).values(name) == []
    metrics.responses.labels("plain", "completed", "gpt-oss-20b").inc()
    found = Scraped(generate_latest(metrics.registry).decode())
    assert found.value(name, mode="plain", outcome="completed", **model) == 1
    assert found.value(name, mode="background", outcome="failed", **model) == 0


def test_a_value_of_a_label_that_is_not_declared_is_refused_and_makes_no_series() -> None:
    metrics = make_metrics()
    before = generate_latest(metrics.registry)
    for name, _, about in declarations():
        if any(about.labels.values()):
            with pytest.raises(ValueError, match=f"{about.name} has no series"):
                getattr(metrics, name).labels(*("new" for _ in about.labels))
    assert generate_latest(metrics.registry) == before
    metrics.answered("/v1/models", "GET", 418, 0.1)  # the values of its labels aren't known before


async def test_a_scrape_tells_what_every_shard_holds() -> None:
    found = Scraped(await told())
    assert found.value("harmonium_store_up") == 1
    assert found.value("harmonium_queue_jobs", shard="0", priority="flex") == 1
    assert found.value("harmonium_queue_jobs", shard="0", priority="within_8h") == 8
    assert found.value("harmonium_queue_oldest_seconds", shard="0") == 12.5
    assert found.value("harmonium_jobs_running", shard="0") == 2
    assert found.value("harmonium_event_log_bytes", shard="0") == 4096
    assert found.value("harmonium_store_responses", shard="1") == 9
    assert found.value("harmonium_store_trees", shard="1") == 3
    assert found.value("harmonium_store_bytes", shard="1") == 1024
    assert found.value("harmonium_webhooks_pending", shard="0") == 5


async def test_a_scrape_tells_which_servers_are_up_and_the_limits_that_are_not_off() -> None:
    found = Scraped(await told())
    assert found.value("harmonium_engine_up", server="10.0.0.5:8000") == 1
    assert found.value("harmonium_engine_up", server="10.0.0.6:8000") == 0
    assert found.value("harmonium_limit_bytes", setting="max_bytes") == 1 << 30
    assert found.value("harmonium_limit", setting="max_concurrent_requests") == 14, "of two processes"
    assert found.value("harmonium_limit", setting="max_trees") == 9
    assert ("max_responses",) not in found.counted("harmonium_limit")
    assert ("max_bytes",) not in found.counted("harmonium_limit"), "a metric has one unit"


async def test_what_holds_the_loop_up_is_counted() -> None:
    metrics = make_metrics()

    def late() -> float:
        return Scraped(generate_latest(metrics.registry).decode()).value("harmonium_loop_lag_seconds_sum")

    async with lag_counted(metrics):
        await asyncio.sleep(0)
        time.sleep(LOOK_SECONDS + 0.2)  # noqa: ASYNC251
        await until(late, wanted=lambda seconds: seconds >= 0.2)


async def test_scrapes_beyond_their_number_are_told_to_come_back() -> None:
    release = asyncio.Event()

    async def slow() -> Mapping[int, QueueFigures]:
        await release.wait()
        return STATES

    busy = exposition(slow)
    scrapes = [asyncio.create_task(busy.scrape("")) for _ in range(MAX_SCRAPES)]
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as refusal:
        await busy.scrape("")
    assert refusal.value.status == 503
    release.set()
    await asyncio.gather(*scrapes)
    await busy.scrape("")
