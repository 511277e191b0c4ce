"""The probes: alive is one thing, ready another, and the second says what is missing."""

import asyncio
import operator
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from service.engine.port import EngineAway, EngineUnavailable
from service.process import Settings
from store.history.history import POLICY_SECONDS
from store.layout import LAYOUT, Layout, Terms
from tests.support.service.inside import answer, scripted, serving
from tests.support.service.process import MODEL, ServiceProcess
from tests.support.store.servers import PLAIN, server
from tests.support.waiting import until, wait_until


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_service_that_works_is_alive_and_ready(service: ServiceProcess) -> None:
    assert service.http().get("/health").json() == {"status": "ok"}
    assert (service.http().head("/ready").status_code, service.http().options("/ready").status_code) == (200, 200)
    ready = service.http().get("/ready").json()
    assert ready.items() >= {"status": "ok", "store": "ok", "engine": "ok", "worker": "ok"}.items()


def test_a_store_that_hangs_makes_it_unready_within_its_timeout(start: Callable[..., ServiceProcess]) -> None:
    service = start(store_timeout_seconds=0.5)
    with stopped(service.redis_pid()):
        begun = time.monotonic()
        ready = service.http().get("/ready")
        assert time.monotonic() - begun < 10  # it waits for no other bound, and not for ever
        assert ready.status_code == 503
        assert ready.json() == {"status": "unavailable", "store": "unavailable", "engine": "ok", "worker": "ok"}
        assert service.http().get("/health").status_code == 200
    wait_until(lambda: service.http().get("/ready").status_code == 200)


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
        assert away["engine_waits"].startswith("no server has answered for 131 s; a server answers once its model")
        assert (await http.get("/health")).status_code == 200


async def test_a_store_that_got_more_shards_is_named(settings: Settings) -> None:
    async with serving(settings, scripted([])) as inside, inside.http() as http:
        assert (await http.get("/ready")).status_code == 200
        await Layout(inside.store.server, inside.store.keyspace, Terms(4)).agree()
        ready = await http.get("/ready")
        assert (ready.status_code, ready.json()["store"]) == (503, "mismatch")


async def test_a_store_that_got_another_layout_is_named_and_gets_no_request_any_more(settings: Settings) -> None:
    engine = scripted([answer("Hello.")])

    async with serving(settings, engine) as inside, inside.http() as http:
        asked = {"model": MODEL, "input": "hi"}
        id = (await http.post("/v1/responses", json=asked)).json()["id"]
        server, record = inside.store.server, inside.store.keyspace.all_shards()[0].store
        await server.command("HSET", record, "layout", LAYOUT + 1)
        ready = await http.get("/ready")
        assert (ready.status_code, ready.json()["store"]) == (503, "mismatch")

        async def kept() -> dict[bytes, bytes]:
            keys = await server.command("KEYS", f"{settings.redis_prefix}:*")
            return {key: await server.command("DUMP", key) for key in keys}

        before, made = await kept(), len(engine.generations)
        for request in (
            http.build_request("POST", "/v1/responses", json=asked),
            http.build_request("POST", "/v1/responses", json=asked | {"stream": True}),
            http.build_request("POST", "/v1/responses", json=asked | {"background": True}),
            http.build_request("POST", "/v1/responses", json=asked | {"previous_response_id": id}),
            http.build_request("POST", "/v1/conversations", json={}),
            http.build_request("POST", "/v1/files", data={"purpose": "user_data"}, files={"file": b"text"}),
            http.build_request("GET", f"/v1/responses/{id}"),
            http.build_request("DELETE", f"/v1/responses/{id}"),
        ):
            refused = await http.send(request)
            assert refused.status_code == 503, request
            assert "another layout than this process knows" in refused.json()["error"]["message"]
        assert (await kept(), len(engine.generations)) == (before, made)
        await server.command("HSET", record, "layout", LAYOUT)
        assert (await http.get("/ready")).status_code == 200
        assert (await http.post("/v1/responses", json=asked | {"previous_response_id": id})).status_code == 200


async def test_a_store_that_deletes_keys_by_itself_is_named_by_the_probe(tmp_path: Path, settings: Settings) -> None:
    with server(tmp_path, *PLAIN, "--maxmemory-policy", "allkeys-lru") as redis:
        own = settings.model_copy(update={"redis_url": f"redis://{redis.address}"})
        async with serving(own, scripted([])) as inside, inside.http() as http:
            ready = await http.get("/ready")
            assert (ready.status_code, ready.json()["store"]) == (200, "ok")
            assert ready.json()["store_evicts"] == "maxmemory-policy is allkeys-lru; set it to noeviction"
            redis.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")

            async def is_said() -> bool:
                return "store_evicts" in (await http.get("/ready")).json()

            await until(is_said, wanted=operator.not_)


async def test_a_probe_asks_the_server_of_the_store_what_it_is_once_a_second(
    tmp_path: Path, settings: Settings
) -> None:
    def asked() -> int:
        return redis.ask("INFO", "commandstats").get("cmdstat_info", {"calls": 0})["calls"]

    with server(tmp_path, *PLAIN) as redis:
        own = settings.model_copy(update={"redis_url": f"redis://{redis.address}"})
        async with serving(own, scripted([])) as inside, inside.http() as http:
            before, began = asked(), time.monotonic()
            for _ in range(10):
                replies = await asyncio.gather(*(http.get("/ready") for _ in range(5)))
                assert {reply.status_code for reply in replies} == {200}
            assert asked() - before <= 2 + (time.monotonic() - began) / POLICY_SECONDS


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
            assert "accepts no writes" in refusal.json()["error"]["message"]
            redis.ask("CONFIG", "SET", "min-replicas-to-write", 0)
            assert (await http.get("/ready")).status_code == 200
