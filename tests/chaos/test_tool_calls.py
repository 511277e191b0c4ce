"""Workers and services that are stopped amid a call, and sandboxes that die: real processes, as an operator has them.

scenarios/calls.py has the workers that die between two steps of a call.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import Response

from store.embedded import EmbeddedServer
from tests.support.chaos.storm import QUICK
from tests.support.sandbox.sandboxes import SandboxProcess, folder_for_all
from tests.support.service.process import MODEL, ServiceProcess, WorkerProcess
from tests.support.tools.server import McpServer, mcp_server
from tests.support.waiting import wait_until

SECONDS = 60.0
"""How long anything may take that is waited for."""

LASTING = (
    "open('/mnt/data/runs', 'a').write('x'); import time; time.sleep(3); print(len(open('/mnt/data/runs').read()))"
)
"""Code that takes a while, and says how often it ran."""

AUTO: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
SHOWN: Any = {"include": ["code_interpreter_call.outputs"]}

pytestmark = pytest.mark.timeout(240)


class Stage:
    """Processes of one service. Close it."""

    def __init__(self, folder: Path, redis_url: str, **settings: object) -> None:
        """Starts the API; workers come later, with the same `settings`."""
        self._folder = folder
        self._settings: dict[str, Any] = QUICK | {"redis_url": redis_url} | settings
        self._workers: list[WorkerProcess] = []
        self.api = ServiceProcess(folder / "api", "--no-worker", **self._settings)

    def worker(self) -> WorkerProcess:
        started = WorkerProcess(self._folder / f"worker-{len(self._workers)}", **self._settings)
        self._workers.append(started)
        return started

    def ask(self, words: str, tool: Any, **members: Any) -> str:
        """The id of a response in the background, which may use a tool."""
        create = self.api.client().responses.create
        return create(model=MODEL, input=words, tools=[tool], background=True, **members).id

    def get(self, id: str) -> Response:
        return self.api.client().responses.retrieve(id)

    def done(self, id: str) -> Response:
        wait_until(lambda: self.get(id).status not in ("queued", "in_progress"), SECONDS, "it doesn't end")
        return self.get(id)

    def close(self) -> None:
        for each in (self.api, *self._workers):
            each.kill()


@pytest.fixture
def mcp(tmp_path: Path) -> Iterator[McpServer]:
    with mcp_server(tmp_path / "mcp") as server:
        yield server


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[SandboxProcess]:
    with folder_for_all() as shared:
        process = SandboxProcess(tmp_path / "sandbox", shared)
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Everything but a worker, with the tools of a test; answers take so long that there is time to die amid one."""
    tools: dict[str, object] = (
        {"mcp_allow": request.getfixturevalue("mcp").url}
        if "mcp" in request.fixturenames
        else {"sandbox": request.getfixturevalue("sandbox").listen}
    )
    with EmbeddedServer(tmp_path / "store") as store:
        opened = Stage(tmp_path, store.url, **tools, demo_tokens_per_second=50, shutdown_seconds=1)
        try:
            yield opened
        finally:
            opened.close()


def runs(stage: Stage, id: str) -> bool:
    """Whether the code of a response has begun to run: its container has the file that it writes."""
    calls = [item for item in stage.get(id).output if item.type == "code_interpreter_call"]
    if not calls:
        return False
    answer = stage.api.http("none").get(f"{stage.api.url}/v1/containers/{calls[0].container_id}/files")
    return answer.status_code == 200 and bool(answer.json()["data"])


def call_of(response: Response) -> Any:
    (call,) = [item for item in response.output if item.type in ("mcp_call", "code_interpreter_call")]
    return call


@pytest.mark.parametrize(
    ("tool", "words", "calls", "status"),
    [
        ("look_up", "Use the tool look_up for the word tide", 2, "completed"),
        ("send_mail", "Call the tool send_mail to Bob", 1, "failed"),
    ],
)
def test_a_worker_that_is_stopped_amid_a_call_hands_the_response_over(
    stage: Stage, mcp: McpServer, tool: str, words: str, calls: int, status: str
) -> None:
    first = stage.worker()
    policy: Any = {"require_approval": "never", "allowed_tools": [tool]}
    id = stage.ask(words, {"type": "mcp", "server_label": "maths", "server_url": mcp.url, **policy})
    wait_until(lambda: mcp.began(tool) == 1, SECONDS)
    shown = stage.get(id).output[-1]
    assert (shown.type, getattr(shown, "status", None)) == ("mcp_call", "in_progress")
    first.stop()
    stage.worker()
    mcp.let_go()
    done = stage.done(id)

    assert (done.status, call_of(done).status) == ("completed", status)
    assert ("not known" in str(call_of(done).error)) is (status == "failed")
    assert (mcp.began(tool), mcp.cancelled(tool)) == (calls, 1)


def test_code_that_runs_when_its_worker_dies_runs_once_and_its_end_is_waited_for(stage: Stage) -> None:
    first = stage.worker()
    id = stage.ask(f"Use python: {LASTING}", AUTO, **SHOWN)
    wait_until(lambda: runs(stage, id), SECONDS, "it doesn't run")
    first.kill()
    stage.worker()
    done = stage.done(id)

    assert (done.status, call_of(done).status) == ("completed", "completed")
    assert call_of(done).outputs[0].logs == "1\n"


def test_code_whose_sandbox_dies_is_not_run_again_and_the_next_call_gets_another_container(
    stage: Stage, sandbox: SandboxProcess
) -> None:
    worker = stage.worker()
    id = stage.ask(f"Use python: {LASTING}", AUTO, **SHOWN)
    wait_until(lambda: runs(stage, id), SECONDS, "it doesn't run")
    sandbox.kill()
    worker.kill()
    sandbox.start()
    stage.worker()
    lost = stage.done(id)
    next_one = stage.done(stage.ask("Use python: print('again')", AUTO, **SHOWN, previous_response_id=lost.id))

    assert (lost.status, call_of(lost).status) == ("completed", "failed")
    assert (call_of(next_one).status, call_of(next_one).outputs[0].logs) == ("completed", "again\n")
    assert call_of(next_one).container_id != call_of(lost).container_id


def test_code_is_interrupted_by_a_stop_of_the_service_and_its_variables_stay(stage: Stage) -> None:
    container = stage.api.client().containers.create(name="endless").id
    tool: Any = {"type": "code_interpreter", "container": container}
    endless = "n = 0; f = open('/mnt/data/began', 'w').close()\nwhile True: n += 1"
    asked: Any = {"model": MODEL, "tools": [tool], **SHOWN}
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
