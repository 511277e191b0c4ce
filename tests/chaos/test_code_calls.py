"""Workers, and sandboxes, that die while code runs: nothing runs twice, and what was done is not lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from store.embedded import EmbeddedServer
from tests.support.chaos.storm import QUICK
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.waiting import wait_until

SECONDS = 60.0
TOKENS_PER_SECOND = 60
"""So that there is time to die amid an answer."""

COUNTED = (
    "open('/mnt/data/runs', 'a').write('x'); import time; time.sleep(3); print(len(open('/mnt/data/runs').read()))"
)
"""Code that says how often it ran."""

pytestmark = pytest.mark.timeout(240)


class Stage:
    """A sandbox, an API without a worker, and workers that come and go, over one store."""

    def __init__(self, folder: Path, shared: Path, redis_url: str) -> None:
        self._folder = folder
        self.sandbox = SandboxProcess(folder / "sandbox", shared)
        self._settings: dict[str, Any] = QUICK | {
            "redis_url": redis_url,
            "sandbox": self.sandbox.listen,
            "demo_tokens_per_second": TOKENS_PER_SECOND,
        }
        self._workers: list[WorkerProcess] = []
        self.api = ServiceProcess(folder / "api", "--no-worker", **self._settings)

    def worker(self) -> WorkerProcess:
        """Another worker."""
        started = WorkerProcess(self._folder / f"worker-{len(self._workers)}", **self._settings)
        self._workers.append(started)
        return started

    def ask(self, words: str, **more: Any) -> str:
        """The id of a response in the background, which may run code."""
        tool: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
        include: Any = ["code_interpreter_call.outputs"]
        made = self.api.client().responses.create(
            model=MODEL, input=words, tools=[tool], include=include, background=True, **more
        )
        return made.id

    def get(self, id: str) -> Response:
        """The response as it stands."""
        return self.api.client().responses.retrieve(id)

    def done(self, id: str) -> Response:
        """The response at its end."""
        wait_until(lambda: self.get(id).status not in ("queued", "in_progress"), SECONDS, "it doesn't end")
        return self.get(id)

    def runs(self, id: str) -> bool:
        """Whether the code of a response has begun to run: its container has the file that it writes."""
        calls = [item for item in self.get(id).output if item.type == "code_interpreter_call"]
        if not calls:
            return False
        answer = self.api.http("none").get(f"{self.api.url}/v1/containers/{calls[0].container_id}/files")
        return answer.status_code == 200 and bool(answer.json()["data"])

    def close(self) -> None:
        """End all processes."""
        for each in (self.api, *self._workers, self.sandbox):
            each.kill()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """Everything but a worker."""
    with EmbeddedServer(tmp_path / "store") as store, folder_for_all() as shared:
        opened = Stage(tmp_path, shared, store.url)
        try:
            yield opened
        finally:
            opened.close()


def call_of(response: Response) -> Any:
    """Its one call."""
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    return call


def test_code_that_runs_when_its_worker_dies_runs_once_and_its_end_is_waited_for(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask(f"Use python: {COUNTED}")
    wait_until(lambda: stage.runs(id), SECONDS, "it doesn't run")
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, call_of(done).status) == ("completed", "completed")
    assert call_of(done).outputs[0].logs == "1\n"


def test_the_outcome_of_code_outlives_its_worker(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask("Use python: print(6 * 7)")
    wait_until(lambda: any(getattr(item, "outputs", None) for item in stage.get(id).output), SECONDS)
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, call_of(done).status, call_of(done).outputs[0].logs) == ("completed", "completed", "42\n")
    assert "42" in done.output_text


def test_code_whose_sandbox_dies_is_not_run_again_and_the_next_call_gets_another_container(stage: Stage) -> None:
    stage.worker()
    id = stage.ask(f"Use python: {COUNTED}")
    wait_until(lambda: stage.runs(id), SECONDS, "it doesn't run")
    stage.sandbox.kill()
    lost = stage.done(id)
    stage.sandbox.start()
    next_one = stage.done(stage.ask("Use python: print('again')", previous_response_id=lost.id))

    assert (lost.status, call_of(lost).status) == ("completed", "failed")
    assert (call_of(next_one).status, call_of(next_one).outputs[0].logs) == ("completed", "again\n")
    assert call_of(next_one).container_id != call_of(lost).container_id
