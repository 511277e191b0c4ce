"""`/metrics`: exact counts after known requests, in one process and in several; who may ask; and what it never says."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from starlette.types import ASGIApp, Message

from service.app import create_app
from service.engine.port import EngineError, EngineOverloaded, EngineRefused, EngineUnavailable, Finish
from service.settings.settings import Settings
from tests.support.engine.scripted import Die, EndWithoutFinish, FinishWith, Stall
from tests.support.service.inside import answer, opened, scripted, serving
from tests.support.service.process import ACME_KEY, GLOBEX_KEY, MODEL, ServiceProcess, raw_request
from tests.support.service.scraped import Scraped, scraped
from tests.support.service.streams import parsed
from tests.support.waiting import until, wait_until
from tests.web.test_health import stopped

Start = Callable[..., ServiceProcess]
METRICS_KEY = "sk-metrics-0123456789"
REQUESTS = 60
LONG = {"model": MODEL, "input": "Count to 900.", "stream": True}


def create(service: ServiceProcess, **body: object) -> httpx.Response:
    """The answer to a create request over a connection of its own, so that any process may take it."""
    return httpx.post(
        f"{service.url}/v1/responses", json={"model": MODEL, "input": "hi", **body}, timeout=30, trust_env=False
    )


async def seen(http: httpx.AsyncClient) -> Scraped:
    """A scrape in the test's own loop."""
    return Scraped((await http.get("/metrics")).text)


async def seen_with(http: httpx.AsyncClient, *, in_progress: int) -> Scraped:
    """The first scrape that tells of so many requests under way."""
    return await until(
        lambda: seen(http), 5, wanted=lambda found: found.value("harmonium_requests_in_progress") == in_progress
    )


def test_requests_are_counted_by_template_method_and_status(start: Start) -> None:
    service = start()
    http = service.http()
    ids = [create(service).json()["id"] for _ in range(3)]
    create(service, stream=True)
    create(service, model="")
    for id in (*ids, "resp_unknown"):
        http.get(f"/v1/responses/{id}")
    http.get(f"/v1/responses/{ids[0]}/input_items")
    http.put("/v1/models")
    http.get("/v1/nothing/here")
    counted = scraped(http).counted("harmonium_requests_total")
    assert {key: value for key, value in counted.items() if key[0] not in ("/ready", "/metrics")} == {
        ("/v1/responses", "POST", "200"): 4,
        ("/v1/responses", "POST", "400"): 1,
        ("/v1/responses/{response_id}", "GET", "200"): 3,
        ("/v1/responses/{response_id}", "GET", "404"): 1,
        ("/v1/responses/{response_id}/input_items", "GET", "200"): 1,
        ("/v1/models", "PUT", "405"): 1,
        ("none", "GET", "404"): 1,
    }
    assert scraped(http).value("harmonium_request_duration_seconds_count", endpoint="/v1/responses", method="POST") == 5


def test_responses_and_tokens_are_counted_as_their_usage_says(start: Start) -> None:
    service = start()
    client = service.client()
    plain = [client.responses.create(model=MODEL, input=f"Count to {n}.") for n in range(3, 6)]
    short = client.responses.create(model=MODEL, input="Count to 900.", max_output_tokens=16)
    with client.responses.stream(model=MODEL, input="Count to 7.") as stream:
        streamed = stream.get_final_response()
    found = scraped(service.http())
    assert found.counted("harmonium_responses_total") == {
        ("plain", "completed"): 3,
        ("plain", "incomplete"): 1,
        ("stream", "completed"): 1,
    }
    usages = [response.usage for response in (*plain, short, streamed) if response.usage]
    assert found.value("harmonium_input_tokens_total") == sum(usage.input_tokens for usage in usages)
    assert found.value("harmonium_output_tokens_total") == sum(usage.output_tokens for usage in usages)
    for name in ("time_to_first_token", "time_per_output_token"):
        assert found.value(f"harmonium_{name}_seconds_count", mode="plain") == 4
        assert found.value(f"harmonium_{name}_seconds_count", mode="stream") == 1


def test_operations_of_the_store_and_the_engine_behind_are_told(start: Start) -> None:
    service = start()
    before = scraped(service.http()).value("harmonium_store_operation_seconds_count")
    create(service)
    found = scraped(service.http())
    assert found.value("harmonium_store_operation_seconds_count") > before
    assert found.value("harmonium_engine_up", server="demo") == 1
    wait_until(lambda: scraped(service.http()).value("harmonium_loop_lag_seconds_count") > 0)


def test_a_background_response_and_who_follows_it_are_counted(start: Start) -> None:
    service = start(demo_tokens_per_second=100)
    http = service.http()
    said = {"model": MODEL, "input": "Count to 20.", "stream": True, "background": True}
    with http.stream("POST", "/v1/responses", json=said) as followed:
        pieces = followed.iter_text()
        text = next(pieces)
        assert scraped(http).value("harmonium_followers") == 1
        wait_until(lambda: scraped(http).value("harmonium_jobs_running", shard="0") == 1)
        assert scraped(http).counted("harmonium_responses_total") == {}
        text += "".join(pieces)
    usage = parsed(text)[-1]["response"]["usage"]
    wait_until(lambda: scraped(http).counted("harmonium_responses_total") == {("background", "completed"): 1})
    found = scraped(http)
    assert found.value("harmonium_followers") == 0
    assert found.value("harmonium_jobs_running", shard="0") == 0
    assert found.value("harmonium_jobs_submitted_total") == found.value("harmonium_jobs_claimed_total") == 1
    assert found.value("harmonium_job_queue_seconds_count") == found.value("harmonium_job_run_seconds_count") == 1
    assert found.value("harmonium_output_tokens_total") == usage["output_tokens"]
    assert found.value("harmonium_log_entries_total") > 2


async def test_cached_tokens_are_counted_as_the_engine_says(settings: Settings) -> None:
    engine = scripted([answer("hi"), FinishWith(Finish.STOP, cached_tokens=17)])
    async with serving(settings, engine) as inside, inside.http() as http:
        await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})
        usage = (await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})).json()["usage"]
        assert (await seen(http)).value("harmonium_cached_tokens_total") == 2 * usage["input_tokens_details"][
            "cached_tokens"
        ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Die(EngineError("out of memory")), "failed"),
        (Die(EngineUnavailable("restarting")), "unavailable"),
        (Die(EngineOverloaded("busy")), "overloaded"),
        (Die(EngineRefused("no")), "refused"),
        (EndWithoutFinish(), "failed"),
    ],
    ids=["death", "away", "busy", "refusal", "silence"],
)
async def test_a_failure_of_the_engine_is_counted_once_by_its_kind(
    settings: Settings, fault: Die | EndWithoutFinish, kind: str, stream: bool
) -> None:
    async with serving(settings, scripted([fault])) as inside, inside.http() as http:
        await http.post("/v1/responses", json={"model": MODEL, "input": "hi", "stream": stream})
        found = await seen(http)
    assert found.counted("harmonium_engine_errors_total") == {(kind,): 1}
    assert found.counted("harmonium_responses_total") == {("stream" if stream else "plain", "failed"): 1}
    assert sum(found.values("harmonium_time_to_first_token_seconds_count")) == 0


async def test_a_response_that_takes_too_long_is_no_failure_of_the_engine(settings: Settings) -> None:
    hurried = settings.model_copy(update={"request_seconds": 0.1})
    async with serving(hurried, scripted([opened("Slow"), Stall()])) as inside, inside.http() as http:
        await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})
        found = await seen(http)
    assert found.counted("harmonium_engine_errors_total") == {}
    assert found.counted("harmonium_responses_total") == {("plain", "failed"): 1}


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
    assert found.counted("harmonium_responses_total") == {("stream" if stream else "plain", "cancelled"): 1}


@asynccontextmanager
async def started(app: ASGIApp) -> AsyncIterator[None]:
    """The application between its start and its stop, without a server."""
    asked: asyncio.Queue[Message] = asyncio.Queue()
    answered: asyncio.Queue[Message] = asyncio.Queue()
    living = asyncio.create_task(app({"type": "lifespan", "state": {}}, asked.get, answered.put))
    for stage in ("startup", "shutdown"):
        await asked.put({"type": f"lifespan.{stage}"})
        assert (await answered.get())["type"] == f"lifespan.{stage}.complete"
        if stage == "startup":
            yield
    await living


async def test_a_stream_that_is_cut_off_while_its_client_reads_nothing_is_counted_too(settings: Settings) -> None:
    app = create_app(settings, engine=scripted([opened("Said so far."), Stall()]))
    sending = asyncio.Event()

    async def receive() -> Message:
        if not sending.is_set():
            return {"type": "http.request", "body": json.dumps(LONG).encode()}
        return await asyncio.Future()

    async def send(message: Message) -> None:
        if message.get("body"):
            sending.set()
            await asyncio.Future()

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    request = {"type": "http", "method": "POST", "path": "/v1/responses", "headers": headers, "query_string": b""}
    async with started(app):
        answering = asyncio.create_task(app(request, receive, send))
        await sending.wait()
        answering.cancel()
        await asyncio.wait([answering])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            assert (await seen(http)).counted("harmonium_responses_total") == {("stream", "cancelled"): 1}


async def test_a_full_service_still_answers_scrapes_and_counts_whom_it_refused(settings: Settings) -> None:
    full = settings.model_copy(update={"max_concurrent_requests": 1, "queue_seconds": 0})
    release = asyncio.Event()
    async with serving(full, scripted([Stall(release), answer("Done.")])) as inside, inside.http() as http:
        waiting = asyncio.create_task(http.post("/v1/responses", json={"model": MODEL, "input": "hi"}))
        await seen_with(http, in_progress=1)
        assert (await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})).status_code == 503
        assert (await seen(http)).counted("harmonium_admission_refused_total") == {("requests",): 1}
        release.set()
        assert (await waiting).status_code == 200
        await seen_with(http, in_progress=0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service for two tenants, and a key for its metrics."""
    process = ServiceProcess(
        tmp_path_factory.mktemp("guarded"), api_keys=f"acme:{ACME_KEY},globex:{GLOBEX_KEY}", metrics_key=METRICS_KEY
    )
    yield process
    process.stop()


def test_the_metrics_key_opens_the_metrics_and_nothing_else(guarded: ServiceProcess) -> None:
    assert guarded.http(METRICS_KEY).get("/metrics").status_code == 200
    assert guarded.http(METRICS_KEY).get("/v1/models").status_code == 401


@pytest.mark.parametrize("key", [None, ACME_KEY, METRICS_KEY[:-1], f"{METRICS_KEY}0", "é"])
def test_any_other_key_is_refused(guarded: ServiceProcess, key: str | None) -> None:
    headers = [] if key is None else [(b"authorization", b"Bearer " + key.encode())]
    answer = httpx.get(f"{guarded.url}/metrics", headers=headers, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"


def test_with_api_keys_and_no_metrics_key_nobody_is_let_in_and_told_why(tenants: ServiceProcess) -> None:
    for key in (None, ACME_KEY):
        answer = tenants.http(key).get("/metrics")
        assert answer.status_code == 401
        assert "HARMONIUM_METRICS_KEY" in answer.json()["error"]["message"]


def test_without_keys_this_machine_alone_may_ask(service: ServiceProcess) -> None:
    assert service.http().get("/metrics").status_code == 200
    assert service.http().get("/metrics", headers={"host": "evil.example"}).status_code == 403


def test_a_metrics_key_is_wanted_without_api_keys_too(start: Start) -> None:
    service = start(metrics_key=METRICS_KEY)
    assert service.http().get("/metrics").status_code == 401
    assert service.http(METRICS_KEY).get("/metrics").status_code == 200


def test_no_tenant_id_word_or_path_is_told(guarded: ServiceProcess) -> None:
    http = guarded.http(ACME_KEY)
    said = {"model": MODEL, "input": "marmalade", "metadata": {"team": "quince"}, "prompt_cache_key": "medlar"}
    id = http.post("/v1/responses", json=said).json()["id"]
    http.get(f"/v1/responses/{id}")
    http.delete(f"/v1/responses/{id}")
    http.get("/v1/responses/resp_damson")
    http.get("/v1/rhubarb?sorrel=1", headers={"x-client-request-id": "loquat"})
    http.request("PROPFIND", "/v1/models")
    text = scraped(guarded.http(METRICS_KEY)).text
    assert 'method="other"' in text
    secrets = ("acme", "globex", id[5:], "damson", "marmalade", "quince", "medlar", "rhubarb", "loquat")
    assert [word for word in (*secrets, "sorrel", "PROPFIND", "sk-", MODEL) if word in text] == []


def test_openmetrics_is_told_to_whoever_asks_for_it(service: ServiceProcess) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    answer = service.http().get("/metrics", headers={"accept": accept})
    assert answer.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert "harmonium_requests" in {family.name for family in parse_openmetrics(answer.text)}
    for other in ("text/plain; version=abc", "*/*", "application/json"):
        plain = service.http().get("/metrics", headers={"accept": other})
        assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_a_scrape_is_answered_while_the_store_hangs_and_tells_what_failed(start: Start) -> None:
    service = start(store_timeout_seconds=0.3)
    with stopped(service.redis_pid()):
        assert service.http().get("/v1/responses/resp_" + 48 * "0").status_code == 503
        found = scraped(service.http())
        assert found.value("harmonium_store_errors_total", kind="timeout") >= 1
        assert found.value("harmonium_store_up") == 0
    assert scraped(service.http()).value("harmonium_store_up") == 1
    assert found.value("process_resident_memory_bytes") > 1e6
