"""Workers that die while a model with a chat template answers: another one goes on at the token.

Where its server reads the model, nobody can go on amid an answer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from store.embedded import EmbeddedServer
from tests.support.chaos.storm import QUICK
from tests.support.llama.smol import smol_server
from tests.support.llama.talker import KEY
from tests.support.oracles.event_grammar import check_stream
from tests.support.service.process import ServiceProcess, WorkerProcess
from tests.support.waiting import wait_until

SECONDS = 60.0
"""How long an answer may take, over all workers, on a busy machine."""

ASKED: dict[str, Any] = {"input": "Tell me a long story of a fox.", "max_output_tokens": 80}


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    server = smol_server()
    yield server.url
    server.kill()


class Stage:
    """A service that does no work itself, and workers that are killed and replaced."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder, self._settings = folder, settings
        self.workers: list[WorkerProcess] = []
        self.service = ServiceProcess(folder / "service", "--no-embedded-worker", **settings)
        self.client = self.service.client()
        self.next_worker()

    def next_worker(self) -> None:
        """Kill the worker, and have another one."""
        if self.workers:
            self.workers[-1].kill()
        self.workers.append(WorkerProcess(self._folder / f"worker-{len(self.workers)}", **self._settings))

    def streamed(self, request: dict[str, Any], seen: Callable[[list[Any]], None]) -> list[Any]:
        """All events of a response in the background; each time what came so far is `seen`."""
        events: list[Any] = []
        for event in self.client.responses.create(model="smol", temperature=0, **request, background=True, stream=True):
            events.append(event.to_dict())
            seen(events)
        return events


@contextmanager
def stage(folder: Path, llama: str, *, by_server: bool) -> Iterator[Stage]:
    """Processes before a model that is read here, or by its server."""
    engine: dict[str, Any] = {"engine": "llama", "engine_url": llama, "engine_api_key": KEY}
    if by_server:
        (folder / "key").write_text(KEY)
        member = f'"name": "smol", "kind": "llama", "markup": "server", "urls": ["{llama}"]'
        (folder / "engines.json").write_text(f'{{"engines": [{{{member}, "api_key_file": "{folder / "key"}"}}]}}')
        engine = {"engines": str(folder / "engines.json")}
    with EmbeddedServer(folder / "store") as store:
        made = Stage(folder, **QUICK | engine | {"redis_url": store.url})
        yield made
        for each in (*made.workers, made.service):
            each.stop()


def test_what_a_dead_worker_began_is_said_to_its_end_and_nothing_twice(tmp_path: Path, llama: str) -> None:
    with stage(tmp_path, llama, by_server=False) as made:

        def seen(events: list[Any]) -> None:
            if events[-1]["type"].endswith(".delta") and len(events) in (10, 24):
                made.next_worker()

        expected = made.client.responses.create(model="smol", temperature=0, **ASKED)
        events = made.streamed(ASKED, seen)
        check_stream(events)
        ended = wait_until(lambda: made.client.responses.retrieve(events[0]["response"]["id"]), SECONDS)
        assert len(made.workers) == 3
    assert ended.output_text == expected.output_text
    assert ended.usage is not None
    assert expected.usage is not None
    assert ended.usage.output_tokens == expected.usage.output_tokens


def test_killed_behind_the_first_words_that_its_server_reads_it_fails_and_says_so(tmp_path: Path, llama: str) -> None:
    with stage(tmp_path, llama, by_server=True) as made:

        def seen(events: list[Any]) -> None:
            if events[-1]["type"].endswith(".delta") and len(made.workers) == 1:
                made.next_worker()

        response = check_stream(made.streamed({"input": "Tell me a story of a fox.", "max_output_tokens": 400}, seen))
    assert response["status"] == "failed"
    assert "stopped in the middle of an answer" in response["error"]["message"]
    assert response["output"][0]["content"][0]["text"]
