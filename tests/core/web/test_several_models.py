"""Several models behind one service: `model` chooses, a conversation may change it, and the list may change."""

import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path

import openai
import pytest

from service.engine.port import ModelCard
from service.harmony.tokens import decode
from service.process import Settings, load_settings
from tests.support.engine.scripted import ScriptedEngine
from tests.support.engine.standin import Standin, standing_in
from tests.support.service.inside import Inside, answer, serving
from tests.support.service.process import CoreWorker, ServiceProcess
from tests.support.service.scraped import Scraped
from tests.support.waiting import until, wait_until

Start = Callable[..., ServiceProcess]

A, B = "gpt-oss-20b", "gpt-oss-120b"
ONE, OTHER = "demo-one", "demo-other"
AGAIN = "the keys and engines were read again"
REFUSED = "the keys and engines stay as they were"


def listing(*engines: dict[str, object]) -> str:
    return "".join(
        "[[engines]]\n"
        + "".join(
            f"{name} = {str(value) if isinstance(value, list | int) else repr(value)}\n"
            for name, value in engine.items()
        )
        for engine in engines
    )


def demo(*names: str) -> str:
    return listing(*({"name": name, "kind": "demo"} for name in names))


async def test_anthropic_s_clients_page_through_the_models_in_its_form(settings: Settings, tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    names = [f"demo-{number}" for number in range(5)]
    path.write_text(demo(*names))
    own = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, engines=str(path))
    async with serving(own) as inside, inside.http() as http:
        http.headers["anthropic-version"] = "2023-06-01"
        whole = (await http.get("/v1/models?limit=1000&beta=true&unknown=1")).json()
        assert [each["id"] for each in whole["data"]] == names
        assert whole["has_more"] is False
        assert whole["data"][0].items() >= {"type": "model", "display_name": "demo-0", "lifecycle": "active"}.items()
        datetime.strptime(whole["data"][0]["created_at"], "%Y-%m-%dT%H:%M:%SZ")
        for query, ids, more in (
            ("limit=2", names[:2], True),
            ("limit=2&after_id=demo-1", names[2:4], True),
            ("limit=2&after_id=demo-3", names[4:], False),
            ("limit=2&before_id=demo-4", names[2:4], True),
            ("limit=2&before_id=demo-1", names[:1], False),
            ("before_id=demo-0", [], False),
        ):
            page = (await http.get(f"/v1/models?{query}")).json()
            assert ([each["id"] for each in page["data"]], page["has_more"]) == (ids, more), query
            assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
        one = await http.get("/v1/models/demo-2?beta=true")
        assert one.json() == whole["data"][2]
        assert one.headers["request-id"] == one.headers["x-request-id"]
        for bad, kind in (
            *(
                (f"?{query}", "invalid_request_error")
                for query in ("limit=0", "limit=1001", "after_id=x", "before_id=")
            ),
            ("?after_id=demo-0&before_id=demo-1", "invalid_request_error"),
            ("/demo-9", "not_found_error"),
        ):
            refused = (await http.get(f"/v1/models{bad}")).json()
            assert (refused["type"], refused["error"]["type"]) == ("error", kind), bad
            assert refused["request_id"].startswith("req_")
        del http.headers["anthropic-version"]
        assert (await http.get("/v1/models")).json()["object"] == "list"
        assert (await http.get("/v1/models?limit=1000")).json()["error"]["code"] == "unknown_parameter"
        assert (await http.get("/v1/models/demo-2?beta=true")).json()["error"]["code"] == "unknown_parameter"


@asynccontextmanager
async def two_servers(tmp_path: Path, **second: object) -> AsyncIterator[tuple[Path, Standin, Standin]]:
    async with AsyncExitStack() as stack:
        servers: list[Standin] = []
        for name, text in ((A, "I am small."), (B, "I am large.")):
            engine = ScriptedEngine(ModelCard(f"served-{name}", 0, 131_072), [answer(text)])
            servers.append(await stack.enter_async_context(standing_in(engine)))
        first, other = servers
        path = tmp_path / "engines.toml"
        path.write_text(
            listing(
                {"name": A, "kind": "vllm", "urls": [first.url], "model": first.model, "aliases": ["gpt-4o-mini"]},
                {"name": B, "kind": "vllm", "urls": [other.url], "model": other.model, **second},
            )
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("service.process.PROBE_SECONDS", 0.1)
            yield path, first, other


@asynccontextmanager
async def two(settings: Settings, tmp_path: Path, **second: object) -> AsyncIterator[tuple[Inside, Standin, Standin]]:
    async with two_servers(tmp_path, **second) as (path, first, other):
        given = load_settings(redis_url=settings.redis_url, redis_prefix=settings.redis_prefix, engines=str(path))
        async with serving(given) as inside:
            yield inside, first, other


async def test_each_model_is_listed_chosen_and_named_in_its_response(settings: Settings, tmp_path: Path) -> None:
    async with two(settings, tmp_path, max_output_tokens=4096) as (inside, first, second), inside.client() as client:
        listed = [model async for model in client.models.list()]
        said = {each.id: await client.responses.create(model=each.id, input="Hi") for each in listed}
        one = await client.models.retrieve(B)
        with pytest.raises(openai.NotFoundError) as refusal:
            await client.responses.create(model="gpt-9", input="Hi")
        async with inside.http() as http:
            counted = Scraped((await http.get("/metrics")).text)
    assert [each.id for each in listed] == [A, f"openai/{A}", "gpt-4o-mini", B, f"openai/{B}"]
    assert {name: (each.model, each.output_text) for name, each in said.items()} == {
        each.id: (each.id, "I am large." if B in each.id else "I am small.") for each in listed
    }
    extra = one.model_extra or {}
    assert (extra["root"], extra["max_model_len"], extra["max_output_tokens"]) == (B, 131_072, 4096)
    assert extra["context_length"] == 131_072
    assert {each.body["model"] for each in first.generations} == {first.model}
    assert {each.body["model"] for each in second.generations} == {second.model}
    assert counted.counted("harmonium_responses_total") == {("plain", A, "completed"): 3, ("plain", B, "completed"): 2}
    for name in ("input_tokens_total", "output_tokens_total", "time_to_first_token_seconds_count"):
        assert counted.labels(f"harmonium_{name}", "model") == {A, B}, name
    assert f"this service serves '{A}', '{B}'." in refusal.value.message
    assert "HARMONIUM_ENGINES" in refusal.value.message


async def test_a_conversation_changes_its_model_and_has_all_that_was_said(settings: Settings, tmp_path: Path) -> None:
    async with two(settings, tmp_path) as (inside, _, second), inside.client() as client:
        before = await client.responses.create(model=A, input="My name is Ada.")
        after = await client.responses.create(model=B, input="And now?", previous_response_id=before.id)
        again = await client.responses.create(model=A, input="And then?", previous_response_id=after.id)
        kept = [(await client.responses.retrieve(each.id)).model for each in (before, after, again)]
    assert kept == [A, B, A]
    prompt = decode(second.generations[0].body["token_ids"])
    assert "My name is Ada." in prompt
    assert "I am small." in prompt
    assert again.output_text == "I am small."


async def test_where_one_models_server_is_away_the_other_serves(settings: Settings, tmp_path: Path) -> None:
    async with two(settings, tmp_path) as (inside, _, second), inside.client() as client, inside.http() as http:
        await second.die()
        with pytest.raises(openai.InternalServerError) as refusal:
            await client.responses.create(model=B, input="Hi")
        served = await client.responses.create(model=A, input="Hi")
        waiting = await client.responses.create(model=B, input="Hi", background=True)
        await until(lambda: client.responses.retrieve(waiting.id), wanted=lambda found: found.status == "in_progress")
        done = await client.responses.create(model=A, input="Hi", background=True)
        await until(lambda: client.responses.retrieve(done.id), wanted=lambda found: found.status == "completed")
        counted = Scraped((await http.get("/metrics")).text)
        assert counted.value("harmonium_engine_pauses_total") == 0
        assert {model for _, model in counted.counted("harmonium_engine_errors_total")} == {B}
        ready = await http.get("/ready")
        listed = [model.id async for model in client.models.list()]
    assert (refusal.value.status_code, served.output_text, ready.status_code) == (503, "I am small.", 200)
    assert B in listed


def listed(service: ServiceProcess) -> list[str]:
    data = service.http().get("/v1/models").json()["data"]
    return [each["id"] for each in data if each["id"] == each["root"]]


def metric(service: ServiceProcess, line: str) -> float:
    text = service.http().get("/metrics").text
    return next(float(row.rpartition(" ")[2]) for row in text.splitlines() if row.startswith(line))


def test_the_list_is_read_again_and_a_wrong_one_changes_nothing(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(demo(ONE))
    service = start(engines=path, workers=2)
    wait_until(lambda: " ready " in service.log)
    assert listed(service) == [ONE]
    path.write_text(demo(OTHER, ONE))
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: metric(service, 'harmonium_config_reloads_total{outcome="applied"}') == 2)
    assert listed(service) == [OTHER, ONE]
    assert service.client().responses.create(model=OTHER, input="hi").model == OTHER
    path.write_text(demo(ONE, ONE))
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: service.log.count(REFUSED) == 1)
    wait_until(lambda: metric(service, 'harmonium_config_reloads_total{outcome="refused"}') == 2)
    assert listed(service) == [OTHER, ONE]
    assert f"HARMONIUM_ENGINES={path}: line 5: '{ONE}' is a name of the engine '{ONE}' already" in service.log
    assert service.log.count(AGAIN) == 1


def test_a_worker_whose_list_lacks_a_model_leaves_its_job_to_others_and_does_the_rest(
    start: Start, tmp_path: Path, redis_url: str
) -> None:
    both, one = tmp_path / "both.toml", tmp_path / "one.toml"
    both.write_text(demo(ONE, OTHER))
    one.write_text(demo(ONE))
    shared = {"redis_url": redis_url, "redis_prefix": f"several-{time.time_ns()}"}
    service = start(engines=both, embedded_worker="false", **shared)
    worker = CoreWorker(tmp_path / "worker", engines=one, **shared)
    try:
        client = service.client()
        waiting = client.responses.create(model=OTHER, input="hi", background=True)
        wait_until(lambda: client.responses.retrieve(waiting.id).status == "in_progress")
        done = client.responses.create(model=ONE, input="hi", background=True)
        wait_until(lambda: client.responses.retrieve(done.id).status == "completed")
        assert client.responses.retrieve(waiting.id).status != "failed"
        one.write_text(demo(ONE, OTHER))
        worker.process.send_signal(signal.SIGHUP)
        wait_until(lambda: client.responses.retrieve(waiting.id).status == "completed", 30)
    finally:
        worker.stop()
