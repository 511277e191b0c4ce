"""Workers, and sandboxes, that die while code runs: nothing runs twice, and what was done is not lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from store.embedded import EmbeddedServer
from tests.support.chaos.stage import SECONDS, Stage
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.service.process import MODEL
from tests.support.waiting import wait_until

AUTO: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
TOKENS_PER_SECOND = 60
"""So that there is time to die amid an answer."""

COUNTED = (
    "open('/mnt/data/runs', 'a').write('x'); import time; time.sleep(3); print(len(open('/mnt/data/runs').read()))"
)
"""Code that says how often it ran."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    """Where code runs."""
    with folder_for_all() as shared:
        process = SandboxProcess(tmp_path / "sandbox", shared)
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def stage(tmp_path: Path, sandbox: SandboxProcess) -> Iterator[Stage]:
    """Everything but a worker."""
    with EmbeddedServer(tmp_path / "store") as store:
        opened = Stage(
            tmp_path, store.url, sandbox=sandbox.listen, demo_tokens_per_second=TOKENS_PER_SECOND, shutdown_seconds=1
        )
        try:
            yield opened
        finally:
            opened.close()


def ask(stage: Stage, words: str, **more: Any) -> str:
    """The id of a response in the background, which may run code and shows what that prints."""
    return stage.ask(words, AUTO, include=["code_interpreter_call.outputs"], **more)


def runs(stage: Stage, id: str) -> bool:
    """Whether the code of a response has begun to run: its container has the file that it writes."""
    calls = [item for item in stage.get(id).output if item.type == "code_interpreter_call"]
    if not calls:
        return False
    answer = stage.api.http("none").get(f"{stage.api.url}/v1/containers/{calls[0].container_id}/files")
    return answer.status_code == 200 and bool(answer.json()["data"])


def call_of(response: Response) -> Any:
    """Its one call."""
    (call,) = [item for item in response.output if item.type == "code_interpreter_call"]
    return call


def test_code_that_runs_when_its_worker_dies_runs_once_and_its_end_is_waited_for(stage: Stage) -> None:
    first = stage.worker()
    id = ask(stage, f"Use python: {COUNTED}")
    wait_until(lambda: runs(stage, id), SECONDS, "it doesn't run")
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, call_of(done).status) == ("completed", "completed")
    assert call_of(done).outputs[0].logs == "1\n"


def test_the_outcome_of_code_outlives_its_worker(stage: Stage) -> None:
    first = stage.worker()
    id = ask(stage, "Use python: print(6 * 7)")
    wait_until(lambda: any(getattr(item, "outputs", None) for item in stage.get(id).output), SECONDS)
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, call_of(done).status, call_of(done).outputs[0].logs) == ("completed", "completed", "42\n")
    assert "42" in done.output_text


@pytest.mark.parametrize("alone", [True, False])
def test_code_whose_sandbox_dies_is_not_run_again_and_the_next_call_gets_another_container(
    stage: Stage, sandbox: SandboxProcess, alone: bool
) -> None:
    worker = stage.worker()
    id = ask(stage, f"Use python: {COUNTED}")
    wait_until(lambda: runs(stage, id), SECONDS, "it doesn't run")
    sandbox.kill()
    if not alone:
        worker.kill()
        sandbox.start()
        stage.worker()
    lost = stage.done(id)
    if alone:
        sandbox.start()
    next_one = stage.done(ask(stage, "Use python: print('again')", previous_response_id=lost.id))

    assert (lost.status, call_of(lost).status) == ("completed", "failed")
    assert (call_of(next_one).status, call_of(next_one).outputs[0].logs) == ("completed", "again\n")
    assert call_of(next_one).container_id != call_of(lost).container_id


def test_code_is_interrupted_by_a_stop_of_the_service_and_its_variables_stay(stage: Stage) -> None:
    container = stage.api.client().containers.create(name="endless").id
    tool: Any = {"type": "code_interpreter", "container": container}
    endless = "n = 0; f = open('/mnt/data/began', 'w').close()\nwhile True: n += 1"
    asked: Any = {"model": MODEL, "tools": [tool], "include": ["code_interpreter_call.outputs"]}
    with stage.api.client().responses.create(**asked, input=f"Use python: {endless}", stream=True) as stream:
        created = next(iter(stream))
        assert created.type == "response.created"
        wait_until(lambda: stage.api.client().containers.files.list(container).data, SECONDS)
        stage.api.ask_to_stop()
        assert stage.api.wait() == 0
    stage.api.start()
    ended = stage.get(created.response.id)
    then = stage.api.client().responses.create(**asked, input="Use python: print(n > 0)")

    assert (ended.status, call_of(ended).status) == ("cancelled", "incomplete")
    assert "not known" in call_of(ended).outputs[0].logs
    assert (call_of(then).status, call_of(then).outputs[0].logs) == ("completed", "True\n")
