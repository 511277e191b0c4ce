"""Workers that die or leave while a model answers that its server reads: nobody can go on amid an answer there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from store.embedded import EmbeddedServer
from tests.support.chaos.storm import QUICK
from tests.support.llama.talker import KEY, LlamaProcess
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.process import ServiceProcess, WorkerProcess

STORY: dict[str, Any] = {"model": "smol", "temperature": 0, "input": "Tell me a story of a fox.", "background": True}


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    server = LlamaProcess(smol=True)
    yield server.url
    server.kill()


def settings_of(tmp_path: Path, store: EmbeddedServer, llama: str) -> dict[str, Any]:
    """Settings with a file of engines that says who reads the model."""
    file = tmp_path / "engines.json"
    key = tmp_path / "key"
    key.write_text(KEY)
    file.write_text(
        f'{{"engines": [{{"name": "smol", "kind": "llama", "markup": "server", "urls": ["{llama}"], '
        f'"api_key_file": "{key}"}}]}}'
    )
    return {key: value for key, value in QUICK.items() if key != "engine"} | {
        "redis_url": store.url,
        "engines": str(file),
    }


def test_killed_behind_its_first_words_it_fails_and_says_so(tmp_path: Path, llama: str) -> None:
    with EmbeddedServer(tmp_path / "store") as store:
        settings = settings_of(tmp_path, store, llama)
        service = ServiceProcess(tmp_path / "service", "--no-worker", **settings)
        workers = [WorkerProcess(tmp_path / "first", **settings)]
        events: list[Any] = []
        for event in service.client().responses.create(**STORY, max_output_tokens=150, stream=True):
            events.append(event.to_dict())
            if event.type.endswith(".delta") and len(workers) == 1:
                workers[0].kill()
                workers.append(WorkerProcess(tmp_path / "next", **settings))
        response = check_stream(events)
        for each in (*workers, service):
            each.stop()
    assert response["status"] == "failed"
    assert "stopped in the middle of an answer" in response["error"]["message"]
    assert response["output"][0]["content"][0]["text"]


def test_killed_before_its_first_words_it_is_answered_by_another(tmp_path: Path, llama: str) -> None:
    with EmbeddedServer(tmp_path / "store") as store:
        settings = settings_of(tmp_path, store, llama)
        service = ServiceProcess(tmp_path / "service", "--no-worker", **settings)
        workers = [WorkerProcess(tmp_path / "first", **settings)]
        long = STORY | {"input": "Once upon a time there was a fox. " * 60}
        events: list[Any] = []
        for event in service.client().responses.create(**long, max_output_tokens=16, stream=True):
            events.append(event.to_dict())
            if event.type == "response.in_progress":
                workers[0].kill()
                workers.append(WorkerProcess(tmp_path / "next", **settings))
        response = check_stream(events)
        for each in (*workers, service):
            each.stop()
    assert len(workers) == 2
    assert response["status"] in ("completed", "incomplete")


def test_a_worker_that_leaves_says_its_answer_to_the_end_first(tmp_path: Path, llama: str) -> None:
    with EmbeddedServer(tmp_path / "store") as store:
        settings = settings_of(tmp_path, store, llama) | {"shutdown_seconds": 60}
        service = ServiceProcess(tmp_path / "service", "--no-worker", **settings)
        worker = WorkerProcess(tmp_path / "first", **settings)
        events: list[Any] = []
        for event in service.client().responses.create(**STORY, max_output_tokens=60, stream=True):
            events.append(event.to_dict())
            if event.type.endswith(".delta") and len(events) == 8:
                worker.ask_to_stop()
        response = check_stream(events)
        for each in (worker, service):
            each.stop()
    assert (response["status"], response["usage"]["output_tokens"]) == ("incomplete", 60)
