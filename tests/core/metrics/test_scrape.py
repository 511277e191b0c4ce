"""`/metrics`: exact counts after known requests, in one process and in several; who may ask; and what it never says."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from service.engine.port import EngineError, EngineOverloaded
from service.process import Settings
from service.settings.core import parse_api_keys
from tests.core.web.test_health import stopped
from tests.support.engine.scripted import Die, EndWithoutFinish, Stall
from tests.support.service.inside import Inside, answer, opened, scripted, serving
from tests.support.service.process import ACME_KEY, MODEL, ServiceProcess, raw_request
from tests.support.service.scraped import Scraped, scraped
from tests.support.service.streams import parsed
from tests.support.waiting import until, wait_until

Start = Callable[..., ServiceProcess]
METRICS_KEY = "sk-metrics-0123456789"


async def create(inside: Inside, **body: object) -> dict[str, Any]:
    async with inside.http() as http:
        return (await http.post("/v1/responses", json={"model": MODEL, "input": "hi", **body})).json()


async def seen(http: httpx.AsyncClient) -> Scraped:
    return Scraped((await http.get("/metrics")).text)


async def seen_with(http: httpx.AsyncClient, *, in_progress: int) -> Scraped:
    """The first scrape that tells of so many requests under way."""
    return await until(
        lambda: seen(http), wanted=lambda found: found.value("harmonium_requests_in_progress") == in_progress
    )


async def test_requests_are_counted_by_template_method_and_status(settings: Settings) -> None:
    async with serving(settings) as inside, inside.http() as http:
        ids = [(await create(inside))["id"] for _ in range(3)]
        await http.post("/v1/responses", json={"model": MODEL, "input": "hi", "stream": True})
        await create(inside, model="")
        for id in (*ids, "resp_unknown"):
            await http.get(f"/v1/responses/{id}")
        await http.get(f"/v1/responses/{ids[0]}/input_items")
        await http.put("/v1/models")
        await http.get("/v1/nothing/here")
        found = await seen(http)
    assert found.counted("harmonium_requests_total") == {
        ("/v1/responses", "POST", "200"): 4,
        ("/v1/responses", "POST", "400"): 1,
        ("/v1/responses/{response_id}", "GET", "200"): 3,
        ("/v1/responses/{response_id}", "GET", "404"): 1,
        ("/v1/responses/{response_id}/input_items", "GET", "200"): 1,
        ("/v1/models", "PUT", "405"): 1,
        ("none", "GET", "404"): 1,
    }
    assert found.value("harmonium_request_duration_seconds_count", endpoint="/v1/responses", method="POST") == 5


async def test_responses_tokens_and_operations_of_the_store_are_counted(settings: Settings) -> None:
    async with serving(settings) as inside, inside.http() as http, inside.client() as client:
        before = (await seen(http)).value("harmonium_store_operation_duration_seconds_count")
        made = [await client.responses.create(model=MODEL, input=f"Count to {n}.") for n in range(3, 6)]
        made += [await client.responses.create(model=MODEL, input="Count to 900.", max_output_tokens=16)]
        async with client.responses.stream(model=MODEL, input="Count to 7.") as stream:
            made += [await stream.get_final_response()]
        found = await seen(http)
    assert found.counted("harmonium_responses_total") == {
        ("plain", "demo", "completed"): 3,
        ("plain", "demo", "incomplete"): 1,
        ("stream", "demo", "completed"): 1,
    }
    usages = [response.usage for response in made if response.usage]
    assert found.value("harmonium_input_tokens_total") == sum(usage.input_tokens for usage in usages)
    assert found.value("harmonium_output_tokens_total") == sum(usage.output_tokens for usage in usages)
    for name in ("time_to_first_token", "time_per_output_token"):
        assert found.value(f"harmonium_{name}_seconds_count", mode="plain") == 4
        assert found.value(f"harmonium_{name}_seconds_count", mode="stream") == 1
    assert found.value("harmonium_store_operation_duration_seconds_count") > before
    assert found.value("harmonium_engine_up", server="talking") == 1


async def test_a_background_response_and_who_follows_it_are_counted(settings: Settings) -> None:
    paced = settings.model_copy(update={"demo_tokens_per_second": 100})
    said = {"model": MODEL, "input": "Count to 200.", "stream": True, "background": True}
    async with serving(paced) as inside, inside.http() as http:
        async with http.stream("POST", "/v1/responses", json=said) as followed:
            pieces = followed.aiter_text()
            text = await anext(pieces)
            assert (await seen(http)).value("harmonium_followers") == 1
            await until(lambda: seen(http), wanted=lambda found: found.value("harmonium_jobs_running", shard="0") == 1)
            assert (await seen(http)).counted("harmonium_responses_total") == {}
            text += "".join([piece async for piece in pieces])
        usage = parsed(text)[-1]["response"]["usage"]
        ended = {("background", "demo", "completed"): 1}
        found = await until(
            lambda: seen(http), wanted=lambda found: found.counted("harmonium_responses_total") == ended
        )
    assert found.value("harmonium_followers") == 0
    assert found.value("harmonium_jobs_running", shard="0") == 0
    assert found.value("harmonium_jobs_submitted_total") == found.value("harmonium_jobs_claimed_total") == 1
    assert (
        found.value("harmonium_job_queue_duration_seconds_count")
        == found.value("harmonium_job_run_duration_seconds_count")
        == 1
    )
    assert found.value("harmonium_output_tokens_total") == usage["output_tokens"]
    assert found.value("harmonium_event_log_writes_total") > 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Die(EngineError("out of memory")), "failed"),
        (Die(EngineOverloaded("busy")), "overloaded"),
        (EndWithoutFinish(), "failed"),
    ],
    ids=["death", "busy", "silence"],
)
async def test_a_failure_of_the_engine_is_counted_once_by_its_kind(
    settings: Settings, fault: Die | EndWithoutFinish, kind: str, stream: bool
) -> None:
    async with serving(settings, scripted([fault])) as inside, inside.http() as http:
        await http.post("/v1/responses", json={"model": MODEL, "input": "hi", "stream": stream})
        found = await seen(http)
    assert found.counted("harmonium_engine_errors_total") == {(kind, MODEL): 1}
    assert found.counted("harmonium_responses_total") == {("stream" if stream else "plain", MODEL, "failed"): 1}
    assert sum(found.values("harmonium_time_to_first_token_seconds_count")) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_response_whose_client_went_away_counts_as_cancelled(settings: Settings, stream: bool) -> None:
    engine = scripted([opened("Said so far."), Stall()])
    async with serving(settings, engine) as inside, inside.http() as http:
        _, writer = await asyncio.open_connection("127.0.0.1", inside.port)
        writer.write(raw_request(stream=stream))
        await until(lambda: engine.running == 1)
        await seen_with(http, in_progress=1)
        writer.transport.abort()
        found = await seen_with(http, in_progress=0)
    assert found.counted("harmonium_responses_total") == {("stream" if stream else "plain", MODEL, "cancelled"): 1}


async def test_a_full_service_still_answers_scrapes_and_counts_whom_it_refused(settings: Settings) -> None:
    full = settings.model_copy(update={"max_concurrent_requests": 1, "admission_wait_seconds": 0})
    release = asyncio.Event()
    async with serving(full, scripted([Stall(release), answer("Done.")])) as inside, inside.http() as http:
        waiting = asyncio.create_task(http.post("/v1/responses", json={"model": MODEL, "input": "hi"}))
        await seen_with(http, in_progress=1)
        assert (await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})).status_code == 503
        assert (await seen(http)).counted("harmonium_admission_refused_total") == {("requests",): 1}
        release.set()
        assert (await waiting).status_code == 200
        await seen_with(http, in_progress=0)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize("keys", [f"acme:{ACME_KEY}", ""])
async def test_the_metrics_key_opens_the_metrics_and_nothing_else(settings: Settings, keys: str) -> None:
    keyed = settings.model_copy(update={"api_keys": parse_api_keys(keys), "metrics_key": SecretStr(METRICS_KEY)})
    async with serving(keyed) as inside, inside.http() as http:
        assert (await http.get("/metrics", headers=bearer(METRICS_KEY))).status_code == 200
        assert (await http.get("/v1/models", headers=bearer(METRICS_KEY))).status_code == (401 if keys else 200)
        for key in (None, ACME_KEY, METRICS_KEY[:-1], f"{METRICS_KEY}0", "é"):
            headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
            refused = await http.get("/metrics", headers=headers)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key"), key
            assert refused.headers["www-authenticate"] == "Bearer"


async def test_with_api_keys_and_no_metrics_key_nobody_is_let_in(settings: Settings) -> None:
    keyed = settings.model_copy(update={"api_keys": parse_api_keys(f"acme:{ACME_KEY}")})
    async with serving(keyed) as inside, inside.http() as http:
        for headers in ({}, bearer(ACME_KEY)):
            assert (await http.get("/metrics", headers=headers)).status_code == 401


def test_without_keys_this_machine_alone_may_ask(service: ServiceProcess) -> None:
    assert service.http().get("/metrics").status_code == 200
    assert service.http().get("/metrics", headers={"host": "evil.example"}).status_code == 403


async def test_no_tenant_id_word_or_path_is_told(settings: Settings) -> None:
    said = {"model": MODEL, "input": "marmalade", "metadata": {"team": "quince"}, "prompt_cache_key": "medlar"}
    keyed = {"api_keys": parse_api_keys(f"acme:{ACME_KEY}"), "metrics_key": SecretStr(METRICS_KEY)}
    async with serving(settings.model_copy(update=keyed)) as inside, inside.http() as http:
        http.headers.update(bearer(ACME_KEY))
        id = (await http.post("/v1/responses", json=said)).json()["id"]
        await http.get(f"/v1/responses/{id}")
        await http.delete(f"/v1/responses/{id}")
        await http.get("/v1/responses/resp_damson")
        assert (await http.post("/v1/responses", json={**said, "model": "bullace"})).status_code == 404
        await http.get("/v1/rhubarb?sorrel=1", headers={"x-client-request-id": "loquat"})
        await http.request("PROPFIND", "/v1/models")
        text = (await http.get("/metrics", headers=bearer(METRICS_KEY))).text
    assert 'method="other"' in text
    secrets = ("acme", "globex", id[5:], "damson", "marmalade", "quince", "medlar", "rhubarb", "loquat", "bullace")
    assert [word for word in (*secrets, "sorrel", "PROPFIND", "sk-") if word in text] == []


def test_a_scrape_is_answered_while_the_store_hangs_and_tells_what_failed(start: Start) -> None:
    service = start(store_timeout_seconds=0.3)
    with stopped(service.redis_pid()):
        assert service.http().get("/v1/responses/resp_" + 48 * "0").status_code == 503
        found = scraped(service.http())
        assert found.value("harmonium_store_errors_total", kind="timeout") >= 1
        assert found.value("harmonium_store_up") == 0
    wait_until(lambda: scraped(service.http()).value("harmonium_store_up") == 1)
    assert found.value("process_resident_memory_bytes") > 1e6
