"""`harmonium worker` as an operator runs it: beside services that only serve, stopped and started while they go on."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import APIConnectionError
from typer.testing import CliRunner

from service.commands.command_line import app
from service.commands.serve import listen
from service.web.http_protocol import MAX_HEADERS
from tests.support.oracles.event_grammar import check_stream
from tests.support.ports import free_port
from tests.support.service.process import MODEL, CoreProcess, CoreWorker
from tests.support.waiting import wait_until

SECRET = "marmalade"
KEY = "sk-acme-0123456789"
SLOW = 10
"""Tokens a second: what is to be counted then takes longer than the processes that are started meanwhile."""

LEAVE_SECONDS = 8.0
"""How long a worker may take to leave, on a busy machine: far less than its lease, and than it may."""

Start = Callable[..., Any]


@pytest.fixture
def shared(redis_url: str, tmp_path: Path) -> dict[str, object]:
    """What all processes of a test share. No lease ends by itself: whoever goes on was handed the job."""
    return {
        "redis_url": redis_url,
        "redis_prefix": tmp_path.name,
        "lease_seconds": 600,
        "demo_tokens_per_second": SLOW,
        "log_level": "debug",
    }


@pytest.fixture
def run(tmp_path: Path, shared: dict[str, object]) -> Iterator[Start]:
    """Starts processes; they end with the test."""
    started: list[CoreProcess | CoreWorker] = []

    def starter(kind: Callable[..., Any], *options: str, **settings: object) -> Any:
        started.append(kind(tmp_path / f"process-{len(started)}", *options, **(shared | settings)))
        return started[-1]

    yield starter
    for process in started:
        process.stop()


def left(process: CoreProcess | CoreWorker) -> float:
    """How long a process took to leave after it was asked to; its exit code is 0."""
    begun = time.monotonic()
    process.ask_to_stop()
    assert process.wait() == 0, process.log
    return time.monotonic() - begun


def test_what_services_accept_workers_make(run: Start) -> None:
    service: CoreProcess = run(CoreProcess, "--no-embedded-worker", api_keys=f"acme:{KEY}")
    client = service.client(KEY)
    id = client.responses.create(model=MODEL, input=f"My name is {SECRET}.", background=True).id
    assert client.responses.retrieve(id).status == "queued"
    worker: CoreWorker = run(CoreWorker)
    wait_until(lambda: client.responses.retrieve(id).status == "completed")
    assert SECRET in client.responses.retrieve(id).output_text
    wait_until(lambda: id in worker.log)
    assert SECRET not in worker.log + service.log
    assert KEY not in worker.log + service.log


def test_a_service_that_is_stopped_while_nobody_works_cuts_its_streams_and_the_next_one_goes_on(run: Start) -> None:
    leaving: CoreProcess = run(CoreProcess, "--no-embedded-worker", api_keys=f"acme:{KEY}")
    client = leaving.client(KEY)
    stream = client.responses.create(model=MODEL, input="hi", background=True, stream=True)
    begun = [next(stream).to_dict(), next(stream).to_dict()]
    leaving.ask_to_stop()
    with pytest.raises(APIConnectionError):
        next(stream)
    assert leaving.wait() == 0
    assert "Traceback" not in leaving.log
    service: CoreProcess = run(CoreProcess, api_keys=f"acme:{KEY}")
    rest = service.client(KEY).responses.retrieve(begun[0]["response"]["id"], stream=True, starting_after=1)
    assert check_stream([*begun, *(event.to_dict() for event in rest)])["status"] == "completed"


def test_a_worker_answers_probes_on_its_port_and_stops_all_the_same(run: Start) -> None:
    port = free_port()
    worker: CoreWorker = run(CoreWorker, worker_port=port)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as http:
        assert http.get("/health").status_code == 200
        assert http.get("/ready").json()["engine"] == "ok"
        assert http.get("/v1/models").status_code == 404
        assert http.get("/health", headers={f"x-{number}": "" for number in range(MAX_HEADERS + 1)}).status_code == 431
    assert left(worker) < LEAVE_SECONDS
    assert "Traceback" not in worker.log


def test_a_worker_needs_a_redis_and_a_port_that_is_free_and_says_so(redis_url: str) -> None:
    refused = CliRunner().invoke(app, ["worker"])
    assert (refused.exit_code, "HARMONIUM_REDIS_URL" in refused.output) == (1, True)
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        refused = CliRunner().invoke(app, ["worker", "--redis-url", redis_url, "--worker-port", port])
    assert (refused.exit_code, f"port {port}" in refused.output) == (1, True)
