"""The probes: alive is one thing, ready another, and the second says what is missing."""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis.exceptions import ResponseError

from service.configured_engines import open_engine
from service.engine.port import EngineAway, EngineUnavailable
from service.process import close_service, open_service
from service.settings.settings import Settings, load_settings
from store.errors import StoreUnavailable
from store.history.history import ConversationHistoryStore
from store.layout import Layout, Terms
from tests.support.engine.standin import standing_in
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.store.servers import PLAIN, server
from tests.support.waiting import until


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing until the end of the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_service_that_works_is_alive_and_ready(service: ServiceProcess) -> None:
    assert service.http().get("/health").json() == {"status": "ok"}
    ready = service.http().get("/ready").json()
    assert ready.pop("archive").keys() == {"waiting", "oldest_seconds", "usable"}
    assert ready == {"status": "ok", "store": "ok", "engine": "ok", "worker": "ok"}


def test_a_store_that_hangs_makes_it_unready_within_its_timeout(start: Callable[..., ServiceProcess]) -> None:
    service = start(store_timeout_seconds=0.5)
    with stopped(service.redis_pid()):
        begun = time.monotonic()
        ready = service.http().get("/ready")
        assert time.monotonic() - begun < 10  # it waits for no other bound, and not for ever
        assert ready.status_code == 503
        assert ready.json() == {"status": "unavailable", "store": "unavailable", "engine": "ok", "worker": "ok"}
        assert service.http().get("/health").status_code == 200
    assert service.http().get("/ready").status_code == 200


async def test_an_engine_that_is_not_ready_is_named(settings: Settings) -> None:
    engine = scripted([])
    async with serving(settings, engine) as inside, inside.http() as http:
        assert (await http.get("/ready")).status_code == 200
        engine.unready = EngineUnavailable("the model is still loading")
        ready = await http.get("/ready")
        assert (ready.status_code, ready.json()["engine"], ready.json()["store"]) == (503, "unavailable", "ok")
        assert "loading" not in ready.text
        assert "engine_waits" not in ready.json()
        engine.unready = EngineAway("the server at a host can't be reached", 131.2)
        away = (await http.get("/ready")).json()
        assert (away["engine"], "a host" in str(away)) == ("unavailable", False)
        assert away["engine_waits"].startswith("no server has answered for 131 s; one that loads its model")
        assert (await http.get("/health")).status_code == 200


@pytest.mark.parametrize(
    ("version", "lacks"), [("0.32.0", ""), ("0.30.1", "vLLM 0.30.1: generations can't be aborted")]
)
async def test_the_releases_of_servers_are_named_and_what_they_lack_keeps_nobody_from_serving(
    settings: Settings, version: str, lacks: str
) -> None:
    async with standing_in(scripted([]), version=version) as vllm:
        engine = open_engine(load_settings(engine_url=vllm.url))
        async with serving(settings, engine) as inside, inside.http() as http:
            ready = await http.get("/ready")
            assert (ready.status_code, ready.json()["engine_releases"]) == (200, [f"vLLM {version}"])
            assert [each.startswith(lacks) for each in ready.json().get("engine_lacks", ())] == [True] * bool(lacks)
            await vllm.die()
            await until(lambda: not any(engine.servers().values()))
            assert not [
                name for name in (await http.get("/ready")).json() if name in ("engine_releases", "engine_lacks")
            ]


async def test_a_store_that_takes_no_writes_is_named_and_still_read(tmp_path: Path, settings: Settings) -> None:
    with server(tmp_path, *PLAIN) as redis:
        own = settings.model_copy(update={"redis_url": f"redis://{redis.address}", "store_timeout_seconds": 2.0})
        async with serving(own, scripted([answer("Hello.")])) as inside, inside.http() as http:
            id = (await http.post("/v1/responses", json={"model": MODEL, "input": "hi"})).json()["id"]
            redis.ask("CONFIG", "SET", "min-replicas-to-write", 1)
            ready = await http.get("/ready")
            assert (ready.status_code, ready.json()["store"]) == (503, "read-only")
            for path in (f"/v1/responses/{id}", f"/v1/responses/{id}/input_items"):
                assert (await http.get(path)).status_code == 200
            refusal = await http.post("/v1/responses", json={"model": MODEL, "input": "hi", "previous_response_id": id})
            assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "service_unavailable")
            assert "takes no writes" in refusal.json()["error"]["message"]
            redis.ask("CONFIG", "SET", "min-replicas-to-write", 0)
            assert (await http.get("/ready")).status_code == 200


async def test_a_store_that_got_more_shards_is_named_told_of_once_and_not_swept(
    settings: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.background.tasks.SWEEP_SECONDS", 0.05)
    async with serving(settings, scripted([])) as inside, inside.http() as http:
        assert (await http.get("/ready")).status_code == 200
        store = inside.store
        await until(lambda: swept(store))
        await Layout(store.server, settings.key_prefix, Terms(4)).agree()
        ready = await http.get("/ready")
        assert (ready.status_code, ready.json()["store"]) == (503, "mismatch")
        sweeps = await swept(store)
        for _ in range(5):
            assert (await http.get("/ready")).status_code == 503
        assert await swept(store) == sweeps
    (told,) = [record for record in caplog.records if "not to be used" in record.getMessage()]
    assert told.__dict__["fields"]["remedy"] == "set HARMONIUM_SHARDS=4, or more; it never shrinks"


async def swept(store: ConversationHistoryStore) -> bytes:
    """When the store was swept last, once a sweep that was under way is over."""
    last = store.keyspace.all_shards()[0].turns.removesuffix("t:") + "sweeps"
    async with store.server.operation() as operation:
        return await operation.command("HGET", last, "last")


@pytest.mark.parametrize(
    ("flags", "url", "reason"),
    [
        ((), "redis://127.0.0.1:1/0", "Check that it runs and can be reached."),
        (("--requirepass", "right"), "redis://:wrong-password@{address}/0", "refuses the user or the password"),
    ],
    ids=["nobody listens", "a wrong password"],
)
async def test_a_store_that_is_away_from_the_start_is_one_line_with_its_address_and_the_way_out(
    tmp_path: Path, settings: Settings, caplog: pytest.LogCaptureFixture, flags: tuple[str, ...], url: str, reason: str
) -> None:
    with server(tmp_path, *PLAIN, *flags) as redis:
        own = settings.model_copy(update={"redis_url": url.format(address=redis.address)})
        async with serving(own, scripted([])) as inside, inside.http() as http:
            for _ in range(5):
                assert (await http.get("/ready")).status_code == 503
    shown = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in shown] == ["the store is away"]
    fields = shown[0].__dict__["fields"]
    assert fields["url"] == url.format(address=redis.address).replace("wrong-password", "****")
    assert reason in fields["reason"]
    assert ".." not in fields["reason"]
    assert "harmonium doctor" in fields["remedy"]


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_probes_may_ask_by_other_methods(service: ServiceProcess, method: str, path: str) -> None:
    answer = service.http().request(method, path)
    assert answer.status_code == 200
    assert not (method == "HEAD" and answer.content)


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        ("MISCONF Errors writing to the AOF file: No space left on device", 2),
        ("MISCONF Redis is configured to save RDB snapshots, but can't", 1),
        ("Connection refused", 1),
    ],
)
async def test_whoever_could_not_write_its_file_is_to_write_it_anew_before_a_restart(
    settings: Settings, caplog: pytest.LogCaptureFixture, reason: str, lines: int
) -> None:
    service = open_service(settings, scripted([]))
    failure = StoreUnavailable(f"the server failed: {reason}")
    failure.__cause__ = ResponseError(reason)
    service.store.server.health.note(failure, "error", time.monotonic())
    service.store.server.health.succeeded(wrote=True)
    await close_service(service)
    lines_of_it = ("the store is back", "the store could not save")
    told = [record for record in caplog.records if record.getMessage() in lines_of_it]
    assert len(told) == lines
    assert [record.levelname for record in told[1:]] == ["ERROR"] * (lines - 1)
